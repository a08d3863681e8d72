import { useQuery } from "@tanstack/react-query";
import { App, Checkbox, Form, Input, InputNumber, Radio, Select } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import { type Build, type NewUpgrade, planUpgrade, startUpgrade, type UpgradePlan } from "@/api/fleet";
import { businessesQuery } from "@/api/hosts";
import { splitHosts } from "@/features/operate/request";
import { useMessages } from "@/settings/context";
import { upgradePath } from "@/ui/paths";
import { PlanDialog } from "@/ui/plan-dialog";
import { Failure, Skeleton } from "@/ui/states";
import { useAction } from "@/ui/use-action";
import { useSettled } from "@/ui/use-settled";
import { UpgradePlanView, upgradedIn } from "./upgrade-plan";

export type Fields = {
  version?: string;
  where: "all" | "business" | "hosts";
  business?: number;
  hosts: string;
  rings: string;
  deadline: number | null;
  maxFailures: number | null;
  downgrade: boolean;
};

const initial: Fields = {
  where: "all",
  hosts: "",
  rings: "1, 5%, 25%, 100%",
  deadline: 60,
  maxFailures: 0,
  downgrade: false,
};

/** `1, 5%` as the server takes it. */
export function ringsOf(text: string): (number | string)[] {
  const parts = text.split(/[\s,，]+/).filter((part) => part !== "");
  return parts.map((part) => (/^[0-9]+$/.test(part) ? Number(part) : part));
}

/** What the form stands for; none while something is missing. */
export function requestOf(fields: Fields): NewUpgrade | undefined {
  const { version, where, business, deadline, maxFailures } = fields;
  const hosts = splitHosts(fields.hosts);
  const isComplete =
    version && deadline !== null && maxFailures !== null && (where !== "hosts" || hosts.length > 0);
  if (!isComplete || (where === "business" && business === undefined)) return undefined;
  const which = where === "all" ? { all: true } : where === "business" ? { business } : { hosts };
  return {
    version,
    ...which,
    rings: ringsOf(fields.rings),
    health_deadline_secs: deadline,
    max_failures: maxFailures,
    allow_downgrade: fields.downgrade,
  };
}

/** Exactly the hosts of the plan in its rings, whatever has joined since. */
export function asPlanned(request: NewUpgrade, plan: UpgradePlan): NewUpgrade {
  let reached = 0;
  const rings = plan.rings.map((ring) => {
    reached += ring.hosts.length;
    return reached;
  });
  const { version, health_deadline_secs, max_failures, allow_downgrade } = request;
  const hosts = plan.rings.flatMap((ring) => ring.hosts);
  return { version, hosts, rings, health_deadline_secs, max_failures, allow_downgrade };
}

/** Typing does not ask the server at each key. */
const SETTLE_MS = 400;

type Props = { builds: Build[]; onClose: () => void };

/** Starts an upgrade, with the plan of its rings below the form. */
export function UpgradeDialog({ builds, onClose }: Props) {
  const { upgrades: text } = useMessages();
  const navigate = useNavigate();
  const { act } = useAction();
  const { message } = App.useApp();
  const [fields, setFields] = useState(initial);
  const settled = useSettled(fields, SETTLE_MS);
  const request = requestOf(settled);
  const query = useQuery({
    queryKey: ["upgrade-plan", request],
    queryFn: ({ signal }) => (request ? planUpgrade(request, signal) : null),
    enabled: request !== undefined,
    staleTime: 0,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });
  const plan = request ? query.data : undefined;
  const isPlanned = Boolean(plan) && settled === fields && !query.isFetching && !query.error;
  const count = plan?.rings.reduce((sum, ring) => sum + upgradedIn(ring), 0) ?? 0;

  const start = async () => {
    if (!request || !plan) return;
    const upgrade = await act(() => startUpgrade(asPlanned(request, plan)), ["upgrades"]);
    if (!upgrade) return;
    void message.success(text.plan.started);
    await navigate(upgradePath(upgrade.id));
  };
  return (
    <PlanDialog
      title={text.start}
      yes={text.plan.yes}
      count={count}
      isPlanned={isPlanned}
      onYes={start}
      onClose={onClose}
    >
      <Form<Fields>
        layout="vertical"
        initialValues={initial}
        onValuesChange={(_, all) => setFields((before) => ({ ...before, ...all }))}
      >
        <UpgradeFields builds={builds} where={fields.where} />
      </Form>
      {!request && <p className="muted flush">{text.plan.fill}</p>}
      {request && query.isPending && <Skeleton lines={3} />}
      {request && query.error && <Failure error={query.error} need="admin" />}
      {plan && !query.error && <UpgradePlanView plan={plan} isOutdated={!isPlanned} />}
    </PlanDialog>
  );
}

function UpgradeFields({ builds, where }: { builds: Build[]; where: Fields["where"] }) {
  const { upgrades } = useMessages();
  const { form: text } = upgrades;
  const businesses = useQuery(businessesQuery).data ?? [];
  const versions = [...new Set(builds.map((build) => build.version))];
  const machinesOf = (version: string) =>
    builds.filter((build) => build.version === version).map((build) => build.arch);
  return (
    <div className="upgrade-form">
      <Form.Item name="version" label={text.version} extra={text.versionHelp} required>
        <Select
          options={versions.map((value) => ({
            value,
            label: `${value} (${[...new Set(machinesOf(value))].join(", ")})`,
          }))}
        />
      </Form.Item>
      <Form.Item name="rings" label={text.rings} extra={text.ringsHelp}>
        <Input autoComplete="off" />
      </Form.Item>
      <Form.Item name="where" label={text.where} className={where === "all" ? "is-wide" : undefined}>
        <Radio.Group
          options={[
            { value: "all", label: text.all },
            { value: "business", label: text.business },
            { value: "hosts", label: text.hosts },
          ]}
        />
      </Form.Item>
      {where === "business" && (
        <Form.Item name="business" label={text.business} required>
          <Select
            showSearch={{ optionFilterProp: "label" }}
            options={businesses.map((business) => ({ value: business.id, label: business.name }))}
          />
        </Form.Item>
      )}
      {where === "hosts" && (
        <Form.Item name="hosts" label={upgrades.hosts} extra={text.hostsHelp} required>
          <Input.TextArea autoSize={{ minRows: 1, maxRows: 4 }} className="mono" />
        </Form.Item>
      )}
      <Form.Item name="deadline" label={text.deadline} extra={text.deadlineHelp}>
        <InputNumber min={10} max={3600} precision={0} style={{ width: "100%" }} />
      </Form.Item>
      <Form.Item name="maxFailures" label={text.maxFailures} extra={text.maxFailuresHelp}>
        <InputNumber min={0} max={100_000} precision={0} style={{ width: "100%" }} />
      </Form.Item>
      <Form.Item name="downgrade" valuePropName="checked" className="is-wide">
        <Checkbox>{text.downgrade}</Checkbox>
      </Form.Item>
    </div>
  );
}

import { ReloadOutlined } from "@ant-design/icons";
import { Button, Segmented } from "antd";
import { useMemo } from "react";
import { Link } from "react-router";
import type { OperationRequest, PlannedTarget } from "@/api/tasks";
import { ofNote } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { formatSpan, useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Badge, Phase, type Tone } from "@/ui/phase";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { type OperateForm, waitOf } from "./request";
import { RunPlan } from "./run-plan";
import { type Fate, fateOf, fates, type Plan } from "./use-plan";

const tones: Record<Fate, Tone> = {
  runs: "running",
  away: "warning",
  cordoned: "warning",
  forbidden: "failed",
  refused: "failed",
};

type Props = {
  form: OperateForm;
  requests: OperationRequest[] | undefined;
  plan: Plan | null;
  isPlanning: boolean;
  error: Error | null;
  plannedAt: number;
  planAgain: () => void;
};

export function PlanView(props: Props) {
  const { operate: text } = useMessages();
  const { form, requests, plan, isPlanning, error } = props;
  if (requests && plan && plan.targets.length > 0 && !error)
    return <Planned {...props} requests={requests} plan={plan} />;
  return (
    <div className="panel operate-plan">
      {form.by === "picked" && form.picked.length === 0 ? (
        <Empty title={text.pickedLost}>
          <Link to="/processes">{text.selectAgain}</Link>
        </Empty>
      ) : !requests && !isPlanning && !error ? (
        <Empty title={text.planNothing} />
      ) : error ? (
        <Failure error={error} onRetry={props.planAgain} />
      ) : plan ? (
        <Empty title={text.planEmpty} />
      ) : (
        <>
          <p className="muted operate-note">{isPlanning ? text.planning : ""}</p>
          <Skeleton lines={10} />
        </>
      )}
    </div>
  );
}

type PlannedProps = Props & { requests: OperationRequest[]; plan: Plan };

function Planned({ form, requests, plan, isPlanning, plannedAt, planAgain }: PlannedProps) {
  const { operate: text, common } = useMessages();
  const number = useNumbers();
  const columns = usePlanColumns(waitOf(form));
  const [shown, setShown] = useUrlValue("fate");
  const { counts } = plan;
  const rows = useMemo(
    () =>
      fates.some((fate) => fate === shown)
        ? plan.targets.filter((target) => fateOf(target) === shown)
        : plan.targets,
    [plan.targets, shown],
  );
  const present = fates.filter((fate) => counts[fate] > 0);
  return (
    <section className={`operate-plan${isPlanning ? " is-planning" : ""}`} aria-label={text.plan}>
      <div className="panel operate-sums">
        <div className="row wrap">
          {fates
            .filter((fate) => fate === "runs" || counts[fate] > 0)
            .map((fate) => (
              <Badge key={fate} tone={tones[fate]}>
                {text.sum[fate](number(counts[fate]))}
              </Badge>
            ))}
          {plan.notes > 0 && <Badge tone="warning">{text.notes(number(plan.notes))}</Badge>}
          <span className="muted">{text.onHosts(number(plan.hosts))}</span>
          <span className="plan-tools">
            <span className="muted">
              {text.plannedAt} <TimeMs at={plannedAt} />
            </span>
            <ExportButton
              name="plan"
              rows={rows}
              columns={["process", "host", "operation", "phase", "online", "refused", "note"]}
            />
            <Button
              size="small"
              type="text"
              icon={<ReloadOutlined />}
              aria-label={text.planAgain}
              title={text.planAgain}
              loading={isPlanning}
              onClick={planAgain}
            />
          </span>
        </div>
        <RunPlan form={form} requests={requests} plan={plan} isPlanning={isPlanning} />
      </div>
      {present.length > 1 && (
        <Segmented
          className="operate-fates"
          value={shown}
          onChange={setShown}
          options={[
            { value: "", label: `${common.all} ${number(plan.targets.length)}` },
            ...present.map((fate) => ({ value: fate, label: `${text.fate[fate]} ${number(counts[fate])}` })),
          ]}
        />
      )}
      <DataTable
        label={text.plan}
        isMain
        columns={columns}
        rows={rows}
        rowKey={(target) => `${target.process} ${target.host}`}
        isLoading={false}
        rowClass={(target) => (fateOf(target) === "runs" ? "" : "is-away")}
        empty={<EmptyFiltered names={["fate"]} />}
      />
    </section>
  );
}

function usePlanColumns(waitSecs: number): Column<PlannedTarget>[] {
  const { operate: text, common } = useMessages();
  return [
    {
      key: "process",
      title: common.process,
      width: "minmax(90px, 1.3fr)",
      render: (target) => target.process,
    },
    {
      key: "host",
      title: common.host,
      width: "minmax(108px, 1fr)",
      render: (target) => (
        <Link to={hostPath(target.host)} className="mono">
          {target.host}
        </Link>
      ),
    },
    {
      key: "now",
      title: text.phaseNow,
      width: "104px",
      from: 420,
      render: (target) =>
        target.phase ? <Phase phase={target.phase} isOnline={target.online ?? true} /> : "",
    },
    {
      key: "would",
      title: text.would,
      width: "minmax(120px, 2fr)",
      render: (target) => <Would target={target} waitSecs={waitSecs} />,
    },
  ];
}

function Would({ target, waitSecs }: { target: PlannedTarget; waitSecs: number }) {
  const { operate: text, terms, common } = useMessages();
  const fate = fateOf(target);
  if (target.refused) {
    const why = terms.told(target.refused);
    const told = fate === "cordoned" ? why : `${text.fate[fate]}: ${why}`;
    return (
      <span className={`tone-${tones[fate]}`} title={told}>
        {told}
      </span>
    );
  }
  if (fate === "away") {
    const told = waitSecs > 0 ? text.wouldWait(formatSpan(waitSecs, common)) : text.wouldFailAway;
    return (
      <span className="tone-warning" title={told}>
        {told}
      </span>
    );
  }
  const name = terms.operation[target.operation];
  const note = terms.told(ofNote(target));
  if (note) return <span className="tone-warning" title={note}>{`${name}: ${note}`}</span>;
  const hint = hintOf(target);
  return (
    <>
      {name}
      {hint && <span className="muted"> · {text.hint[hint]}</span>}
    </>
  );
}

/** What the operation finds, where that is not what one expects. */
export function hintOf({ operation, phase }: PlannedTarget): "runsAlready" | "doesNotRun" | undefined {
  const runs = phase === "running" || phase === "starting";
  const isDown = phase === "stopped" || phase === "failed";
  if (operation === "start" && runs) return "runsAlready";
  if (["stop", "restart", "reload", "kill"].includes(operation) && isDown) return "doesNotRun";
  return undefined;
}

import { ReloadOutlined } from "@ant-design/icons";
import { Button, Segmented } from "antd";
import { useMemo, useState } from "react";
import { Link } from "react-router";
import type { OperationRequest, PlannedTarget } from "@/api/tasks";
import { ofNote } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Badge, Phase } from "@/ui/phase";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import type { OperateForm } from "./request";
import { RunPlan } from "./run-plan";
import { type Fate, fateOf, type Plan } from "./use-plan";

type Props = {
  form: OperateForm;
  request: OperationRequest | undefined;
  plan: Plan | null;
  isPlanning: boolean;
  error: Error | null;
  plannedAt: number;
  planAgain: () => void;
};

export function PlanView(props: Props) {
  const { operate: text } = useMessages();
  const { request, plan, isPlanning, error } = props;
  if (request && plan && plan.targets.length > 0 && !error)
    return <Planned {...props} request={request} plan={plan} />;
  return (
    <div className="panel operate-plan">
      {!request ? (
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

type PlannedProps = Props & { request: OperationRequest; plan: Plan };

function Planned({ form, request, plan, isPlanning, plannedAt, planAgain }: PlannedProps) {
  const { operate: text, common } = useMessages();
  const number = useNumbers();
  const columns = usePlanColumns();
  const [shown, setShown] = useState<Fate | "">("");
  const { counts } = plan;
  const rows = useMemo(
    () => (shown ? plan.targets.filter((target) => fateOf(target) === shown) : plan.targets),
    [plan.targets, shown],
  );
  const fates: [Fate, string][] = [
    ["runs", text.fate.runs],
    ["away", text.fate.away],
    ["refused", text.fate.refused],
  ];
  const isMixed = fates.filter(([fate]) => counts[fate] > 0).length > 1;
  return (
    <section className={`operate-plan${isPlanning ? " is-planning" : ""}`} aria-label={text.plan}>
      <div className="panel operate-sums">
        <div className="row wrap">
          <Badge tone="running">{text.willRun(number(counts.runs))}</Badge>
          {counts.away > 0 && <Badge tone="warning">{text.offline(number(counts.away))}</Badge>}
          {counts.refused > 0 && <Badge tone="failed">{text.refused(number(counts.refused))}</Badge>}
          {plan.notes > 0 && <Badge tone="warning">{text.notes(number(plan.notes))}</Badge>}
          <span className="muted">{text.onHosts(number(plan.hosts))}</span>
          <span className="grow" />
          <span className="muted">
            {text.plannedAt} <TimeMs at={plannedAt} />
          </span>
          <Button
            size="small"
            type="text"
            icon={<ReloadOutlined />}
            aria-label={text.planAgain}
            title={text.planAgain}
            loading={isPlanning}
            onClick={planAgain}
          />
        </div>
        <RunPlan form={form} request={request} plan={plan} isPlanning={isPlanning} />
      </div>
      {isMixed && (
        <Segmented
          className="operate-fates"
          value={shown}
          onChange={(value) => setShown(value as Fate | "")}
          options={[
            { value: "", label: `${common.all} ${number(plan.targets.length)}` },
            ...fates
              .filter(([fate]) => counts[fate] > 0)
              .map(([fate, label]) => ({ value: fate, label: `${label} ${number(counts[fate])}` })),
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
        empty={<Empty title={common.emptyFiltered} />}
      />
    </section>
  );
}

function usePlanColumns(): Column<PlannedTarget>[] {
  const { operate: text, common } = useMessages();
  return [
    {
      key: "process",
      title: common.process,
      width: "minmax(120px, 1.3fr)",
      render: (target) => target.process,
    },
    {
      key: "host",
      title: common.host,
      width: "minmax(118px, 1fr)",
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
      width: "minmax(150px, 2fr)",
      render: (target) => <Would target={target} />,
    },
  ];
}

function Would({ target }: { target: PlannedTarget }) {
  const { operate: text, terms } = useMessages();
  const fate = fateOf(target);
  if (fate === "refused") {
    const why = target.refused ? terms.told(target.refused) : "";
    return (
      <span className="tone-failed" title={why}>
        {why}
      </span>
    );
  }
  if (fate === "away") return <span className="tone-warning">{text.wouldFailAway}</span>;
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

import { Link } from "react-router";
import type { OperationRequest } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Badge } from "@/ui/phase";
import { Empty, Failure, Skeleton } from "@/ui/states";
import type { OperateForm } from "./request";
import { RunPlan } from "./run-plan";
import type { Plan, Planned } from "./use-plan";

type Props = {
  form: OperateForm;
  request: OperationRequest | undefined;
  plan: Plan | null;
  isPlanning: boolean;
  error: Error | null;
};

export function PlanView({ form, request, plan, isPlanning, error }: Props) {
  const { operate: text } = useMessages();
  const number = useNumbers();
  const columns = usePlanColumns();
  if (!request)
    return (
      <div className="panel operate-plan">
        <Empty title={text.planNothing} />
      </div>
    );
  if (error)
    return (
      <div className="panel operate-plan">
        <Failure error={error} />
      </div>
    );
  if (!plan) {
    return (
      <div className="panel operate-plan">
        <p className="muted operate-note">{isPlanning ? text.planning : ""}</p>
        <Skeleton lines={10} />
      </div>
    );
  }
  if (plan.targets.length === 0)
    return (
      <div className="panel operate-plan">
        <Empty title={text.planEmpty} />
      </div>
    );
  const runs = plan.targets.length - plan.refused - plan.away;
  return (
    <section className={`operate-plan${isPlanning ? " is-planning" : ""}`} aria-label={text.plan}>
      <div className="panel operate-sums">
        <div className="row wrap">
          <Badge tone="running">{text.willRun(number(runs))}</Badge>
          {plan.away > 0 && <Badge tone="warning">{text.offline(number(plan.away))}</Badge>}
          {plan.refused > 0 && <Badge tone="failed">{text.refused(number(plan.refused))}</Badge>}
          {plan.notes > 0 && <Badge tone="warning">{text.notes(number(plan.notes))}</Badge>}
          <span className="muted">{text.onHosts(number(plan.hosts))}</span>
        </div>
        <RunPlan form={form} request={request} plan={plan} isPlanning={isPlanning} />
      </div>
      <DataTable
        label={text.plan}
        isMain
        columns={columns}
        rows={plan.targets}
        rowKey={(target) => `${target.process} ${target.host}`}
        isLoading={false}
        rowClass={(target) => (target.isAway || target.refused ? "is-away" : "")}
        empty={null}
      />
    </section>
  );
}

function usePlanColumns(): Column<Planned>[] {
  const { operate: text, common, terms } = useMessages();
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
      key: "would",
      title: text.would,
      width: "minmax(150px, 2fr)",
      render: (target) => {
        if (target.refused)
          return (
            <span className="tone-failed" title={target.refused.message}>
              {target.refused.message}
            </span>
          );
        if (target.isAway) return <span className="tone-warning">{text.wouldFailAway}</span>;
        const name = terms.operation[target.operation];
        return target.note ? (
          <span className="tone-warning" title={target.note}>{`${name}: ${target.note}`}</span>
        ) : (
          name
        );
      },
    },
  ];
}

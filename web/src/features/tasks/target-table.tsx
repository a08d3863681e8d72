import { Segmented } from "antd";
import { useMemo } from "react";
import { Link } from "react-router";
import type { Target } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { OutcomeBadge, outcomeOf } from "@/ui/outcome";
import { hostPath } from "@/ui/paths";
import { Empty } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";

type Props = { targets: Target[]; isLoading: boolean; onOpen: (index: number) => void };

/** The targets of a task as rows, narrowed by outcome and text. */
export function TargetTable({ targets, isLoading, onOpen }: Props) {
  const { tasks: text, terms, common } = useMessages();
  const number = useNumbers();
  const [state, setState] = useUrlValue("outcome");
  const [search] = useUrlValue("q");
  const rows = useMemo(() => {
    const wanted = search.toLowerCase();
    return targets.filter((target) => {
      if (state && groupOf(target) !== state) return false;
      return !wanted || `${target.host} ${target.process} ${target.message}`.toLowerCase().includes(wanted);
    });
  }, [targets, state, search]);
  const counts = useMemo(() => {
    const sums = { pending: 0, succeeded: 0, failed: 0 };
    for (const target of targets) sums[groupOf(target)] += 1;
    return sums;
  }, [targets]);
  const option = (value: keyof typeof counts) => ({
    value,
    label: `${terms.outcome[value]} ${number(counts[value])}`,
  });
  return (
    <div className="task-table">
      <div className="filters">
        <Segmented
          value={state}
          onChange={setState}
          options={[
            { value: "", label: common.all },
            option("failed"),
            option("pending"),
            option("succeeded"),
          ]}
        />
        <FilterInput name="q" label={text.target.host} />
        <span className="grow" />
        <ExportButton
          name="targets"
          rows={rows}
          columns={["index", "host", "process", "operation", "code", "name", "message"]}
        />
      </div>
      <DataTable
        label={text.targets}
        isMain
        columns={useTargetColumns()}
        rows={rows}
        rowKey={(target) => String(target.index)}
        isLoading={isLoading}
        onOpen={(target) => onOpen(target.index)}
        empty={<Empty title={common.emptyFiltered} />}
      />
    </div>
  );
}

/** What was cancelled, skipped or refused counts as failed, as the server counts it. */
function groupOf(target: Target): "pending" | "succeeded" | "failed" {
  const outcome = outcomeOf(target.code);
  return outcome === "pending" || outcome === "succeeded" ? outcome : "failed";
}

function useTargetColumns(): Column<Target>[] {
  const { tasks: text } = useMessages();
  return [
    {
      key: "host",
      title: text.target.host,
      width: "minmax(118px, 1fr)",
      render: (target) => (
        <Link to={hostPath(target.host)} className="mono">
          {target.host}
        </Link>
      ),
    },
    {
      key: "process",
      title: text.target.process,
      width: "minmax(100px, 1.2fr)",
      from: 460,
      render: (target) => target.process,
    },
    {
      key: "outcome",
      title: text.target.outcome,
      width: "128px",
      render: (target) => <OutcomeBadge target={target} />,
    },
    {
      key: "message",
      title: text.target.message,
      width: "minmax(120px, 2fr)",
      from: 560,
      render: (target) => (
        <span title={target.message.slice(0, 500)}>
          {outcomeOf(target.code) === "pending" ? "" : target.message}
        </span>
      ),
    },
  ];
}

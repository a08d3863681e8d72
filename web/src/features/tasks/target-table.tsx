import { Segmented } from "antd";
import { Link } from "react-router";
import { fetchTargets, type Target, type TargetState, type Task } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { OutcomeBadge, outcomeOf } from "@/ui/outcome";
import { hostPath } from "@/ui/paths";
import { Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { useTargetRows } from "./use-targets";

const states: readonly TargetState[] = ["failed", "pending", "succeeded", "cancelled", "skipped"];

type Props = { task: Task; onOpen: (index: number) => void };

/** The targets of a task as rows, narrowed by outcome and text. */
const filterNames = ["outcome", "q"] as const;

export function TargetTable({ task, onOpen }: Props) {
  const { tasks: text, terms, common } = useMessages();
  const number = useNumbers();
  const [chosen, setState] = useUrlValue("outcome");
  const [search] = useUrlValue("q");
  const state = states.find((known) => known === chosen);
  const list = useTargetRows(task, state, search);
  const columns = useTargetColumns(task.rollout?.released ?? task.total);
  const option = (value: "failed" | "pending" | "succeeded") => ({
    value,
    label: `${terms.outcome[value]} ${number(task[value])}`,
  });
  return (
    <div className="task-table">
      <div className="filters is-short">
        <Segmented
          className="task-outcomes"
          value={chosen}
          onChange={setState}
          options={[
            { value: "", label: common.all },
            option("failed"),
            option("pending"),
            option("succeeded"),
            ...(task.rollout || task.cancelled_at
              ? (["cancelled", "skipped"] as const).map((value) => ({ value, label: terms.outcome[value] }))
              : []),
          ]}
        />
        <span className="row task-search">
          <FilterInput name="q" label={text.searchTargets} width={200} />
          <span className="grow" />
          <ExportButton
            name="targets"
            rows={list.rows}
            fetchPage={search ? undefined : (after) => fetchTargets(task.task_id, state, after, 1000)}
            columns={["index", "host", "process", "operation", "code", "name", "message"]}
          />
        </span>
      </div>
      {list.error && list.rows.length === 0 ? (
        <Failure error={list.error} onRetry={() => void list.retry()} />
      ) : (
        <DataTable
          label={text.targets}
          isMain
          columns={columns}
          {...list.table}
          rowKey={(target) => String(target.index)}
          onOpen={(target) => onOpen(target.index)}
          empty={<EmptyFiltered names={filterNames} />}
        />
      )}
    </div>
  );
}

function useTargetColumns(released: number): Column<Target>[] {
  const { tasks: text, terms } = useMessages();
  return [
    {
      key: "host",
      title: text.target.host,
      width: "minmax(112px, 1fr)",
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
      width: "116px",
      render: (target) => <OutcomeBadge target={target} released={released} />,
    },
    {
      key: "message",
      title: text.target.message,
      width: "minmax(100px, 2fr)",
      from: 340,
      render: (target) => {
        // Without an id there is nothing to say yet; with one, what it waits for.
        if (outcomeOf(target.code) === "pending" && !target.message_id) return "";
        if (outcomeOf(target.code) === "succeeded" && target.message === "success") return "";
        const told = terms.told(target);
        return <span title={told.slice(0, 500)}>{told}</span>;
      },
    },
  ];
}

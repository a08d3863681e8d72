import { useCallback, useMemo } from "react";
import { Link, useNavigate } from "react-router";
import { usePaged } from "@/api/paged";
import { fetchGroups, type GroupSort, type ProcessFilter, type ProcessGroup, phases } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { formatPercent, useNumbers } from "@/ui/format";
import { processPath } from "@/ui/paths";
import { toneOf } from "@/ui/phase";
import { Empty, Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { filterNames } from "./filter";

const sorts: readonly string[] = ["name", "total", "failed", "restarts", "cpu", "memory"];

export function useGroups(filter: ProcessFilter, isOn: boolean) {
  const [by] = useUrlValue("sort", "name");
  const sort = (sorts.includes(by) ? by : "name") as GroupSort;
  const key = useMemo(() => ["processes", "groups", filter, sort, isOn] as const, [filter, sort, isOn]);
  const fetchPage = useCallback(
    async (after: string | null, signal?: AbortSignal) =>
      isOn ? fetchGroups(filter, sort, after, signal) : { rows: [], next: null },
    [filter, sort, isOn],
  );
  return { ...usePaged<ProcessGroup>(key, fetchPage, 10_000), fetchPage };
}

type Props = { list: ReturnType<typeof useGroups>; isFiltered: boolean };

/** Each process once: on how many hosts it is in which phase. */
export function GroupsTable({ list, isFiltered }: Props) {
  const { processes: text } = useMessages();
  const navigate = useNavigate();
  const [sort, setSort] = useUrlValue("sort", "name");
  const columns = useGroupColumns();
  if (list.error && list.rows.length === 0)
    return <Failure error={list.error} onRetry={() => void list.retry()} />;
  return (
    <DataTable
      label={text.title}
      isMain
      columns={columns}
      {...list.table}
      rowKey={(group) => group.process}
      rowClass={(group) => (group.online === 0 ? "is-away" : "")}
      onOpen={(group) => void navigate(processPath(group.process))}
      sort={{ by: sort, onSort: setSort }}
      empty={
        isFiltered ? (
          <EmptyFiltered names={filterNames} />
        ) : (
          <Empty title={text.emptyTitle}>{text.emptyText}</Empty>
        )
      }
    />
  );
}

function useGroupColumns(): Column<ProcessGroup>[] {
  const { processes: text } = useMessages();
  const number = useNumbers();
  const { column } = text;
  const count = (value: number, tone = "") =>
    value > 0 ? <span className={tone}>{number(value)}</span> : <span className="muted">0</span>;
  return [
    {
      key: "process",
      title: column.process,
      width: "minmax(120px, 1.6fr)",
      sort: "name",
      render: (group) => (
        <Link to={processPath(group.process)} title={group.process}>
          {group.process}
        </Link>
      ),
    },
    {
      key: "total",
      title: column.hosts,
      width: "84px",
      isNumber: true,
      sort: "total",
      render: (group) => number(group.total),
    },
    {
      key: "phases",
      title: column.phase,
      width: "minmax(140px, 2fr)",
      from: 560,
      render: (group) => <Phases group={group} />,
    },
    {
      key: "failed",
      title: column.failed,
      width: "80px",
      isNumber: true,
      sort: "failed",
      render: (group) => count(group.phases.failed, "tone-failed"),
    },
    {
      key: "unhealthy",
      title: column.unhealthy,
      width: "90px",
      isNumber: true,
      from: 900,
      render: (group) => count(group.unhealthy, "tone-warning"),
    },
    {
      key: "restarts",
      title: column.restarts,
      width: "84px",
      isNumber: true,
      sort: "restarts",
      from: 700,
      render: (group) => count(group.restarts),
    },
    {
      key: "cpu",
      title: column.cpuMax,
      width: "96px",
      isNumber: true,
      sort: "cpu",
      from: 800,
      render: (group) => formatPercent(group.cpu_percent_max),
    },
    {
      key: "memory",
      title: column.memoryMax,
      width: "110px",
      isNumber: true,
      sort: "memory",
      from: 800,
      render: (group) => formatPercent(group.memory_percent_max),
    },
    {
      key: "specs",
      title: column.specs,
      width: "76px",
      isNumber: true,
      from: 1000,
      render: (group) => (
        <span className={group.specs > 1 ? "" : "muted"} title={group.specs > 1 ? text.specsDiffer : ""}>
          {number(group.specs)}
        </span>
      ),
    },
    {
      key: "labels",
      title: column.labels,
      width: "minmax(110px, 1fr)",
      from: 1100,
      render: (group) => {
        const labels = Object.entries(group.labels)
          .map(([name, value]) => `${name}=${value}`)
          .join(", ");
        return <span title={labels}>{labels}</span>;
      },
    },
  ];
}

function Phases({ group }: { group: ProcessGroup }) {
  const { terms } = useMessages();
  const number = useNumbers();
  const parts = phases.filter((phase) => group.phases[phase] > 0);
  const words = parts.map((phase) => `${terms.phase[phase]} ${number(group.phases[phase])}`).join(", ");
  return (
    <span title={words}>
      <span className="phase-bar" aria-hidden="true">
        {parts.map((phase) => (
          <span key={phase} className={`fill-${toneOf(phase)}`} style={{ flexGrow: group.phases[phase] }} />
        ))}
      </span>
      <span className="visually-hidden">{words}</span>
    </span>
  );
}

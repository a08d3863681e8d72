import { PlusOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Segmented } from "antd";
import { useCallback, useMemo, useState } from "react";
import { useNavigate } from "react-router";
import { usePaged } from "@/api/paged";
import { concernsProcess, facetsQuery, fetchProcesses, type Process } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { ColumnPicker } from "@/ui/column-picker";
import { DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { LinkButton } from "@/ui/link-button";
import { Page } from "@/ui/page";
import { processPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import { Empty, Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { useBusinessName } from "@/ui/use-business-name";
import { BulkBar } from "./bulk-bar";
import { defaultColumns, optionalColumns, processColumns } from "./columns";
import { filterNames, useFilter } from "./filter";
import { FilterBar } from "./filter-bar";
import { GroupsTable, useGroups } from "./groups-table";

const instanceExport = [
  "process",
  "host",
  "phase",
  "reason",
  "online",
  "pid",
  "cpu_percent",
  "memory_percent",
  "restarts",
] as const;
const groupExport = [
  "process",
  "total",
  "online",
  "unhealthy",
  "restarts",
  "specs",
  "cpu_percent_max",
  "memory_percent_max",
] as const;

/** Phases come with their events; only CPU and memory wait for this, which agents report once a minute. */
const REFRESH_MS = 30_000;

const rowKey = (row: Process) => `${row.process} ${row.host}`;

export function Component() {
  const messages = useMessages();
  const { processes: text, common } = messages;
  const number = useNumbers();
  const navigate = useNavigate();
  const filter = useFilter();
  const businessName = useBusinessName();
  const [sort, setSort] = useUrlValue("sort", "name");
  const [view, setView] = useUrlValue("view", "instances");
  const isGrouped = view === "groups";
  const [shown, setShown] = useUrlValue("columns", defaultColumns);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const key = useMemo(() => ["processes", filter, isGrouped] as const, [filter, isGrouped]);
  const fetchPage = useCallback(
    async (after: string | null, signal?: AbortSignal) =>
      isGrouped ? { rows: [], next: null } : fetchProcesses(filter, after, undefined, signal),
    [filter, isGrouped],
  );
  const list = usePaged<Process>(key, fetchPage, REFRESH_MS, concernsProcess);
  const groups = useGroups(filter, isGrouped);
  const counted = isGrouped ? groups : list;
  // The rows first: what every filter could be set to is counted over the whole fleet.
  const hasRows = !counted.isLoading && !counted.table.isOutdated;
  const sums = useQuery({ ...facetsQuery(filter), enabled: hasRows });
  const matching = sums.isPlaceholderData ? undefined : sums.data?.total;
  const total = isGrouped ? groups.total : list.isComplete ? list.rows.length : matching;
  const columns = useMemo(() => {
    const wanted = new Set(shown.split(","));
    const isOptional = (name: string) => (optionalColumns as readonly string[]).includes(name);
    return processColumns(messages, businessName).filter(
      (column) => !isOptional(column.key) || wanted.has(column.key),
    );
  }, [messages, businessName, shown]);
  const isFiltered = Object.entries(filter).some(([name, value]) => name !== "sort" && value !== undefined);

  return (
    <Page
      title={text.title}
      isFilled
      beside={
        <>
          <span className="muted">
            {counted.isLoading
              ? ""
              : common.rows(number(total ?? counted.rows.length), !counted.isComplete && total === undefined)}
          </span>
          <Freshness updatedAt={counted.updatedAt} expectedMs={2 * REFRESH_MS} />
        </>
      }
      actions={
        <>
          <Segmented
            value={view}
            onChange={setView}
            options={[
              { value: "instances", label: text.view.instances },
              { value: "groups", label: text.view.groups },
            ]}
          />
          {!isGrouped && (
            <ColumnPicker
              value={shown}
              onChange={setShown}
              options={optionalColumns.map((name) => ({ value: name, label: text.column[name] }))}
            />
          )}
          {isGrouped ? (
            <ExportButton
              name="processes"
              rows={groups.rows}
              columns={groupExport}
              fetchPage={groups.fetchPage}
            />
          ) : (
            <ExportButton
              name="processes"
              rows={list.rows}
              columns={instanceExport}
              fetchPage={(after) => fetchProcesses(filter, after, 1000)}
            />
          )}
          <Guarded need="register">
            {(isAllowed) => (
              <LinkButton to="/register" type="primary" icon={<PlusOutlined />} disabled={!isAllowed}>
                {text.register}
              </LinkButton>
            )}
          </Guarded>
        </>
      }
    >
      <FilterBar filter={filter} facets={sums.data} isFiltered={isFiltered} />
      {!isGrouped && selected.size > 0 && (
        <BulkBar
          selected={selected}
          filter={filter}
          matching={total}
          onChange={setSelected}
          rowKey={rowKey}
        />
      )}
      {isGrouped ? (
        <GroupsTable list={groups} isFiltered={isFiltered} />
      ) : list.error && list.rows.length === 0 ? (
        <Failure error={list.error} onRetry={() => void list.retry()} />
      ) : (
        <DataTable
          label={text.title}
          isMain
          columns={columns}
          {...list.table}
          rowKey={rowKey}
          rowClass={(row) => (row.online ? "" : "is-away")}
          onOpen={(row) => void navigate(processPath(row.process))}
          selection={{ selected, onChange: setSelected }}
          sort={{ by: sort, onSort: setSort }}
          empty={
            isFiltered ? (
              <EmptyFiltered names={filterNames} />
            ) : (
              <Empty title={text.emptyTitle}>{text.emptyText}</Empty>
            )
          }
        />
      )}
    </Page>
  );
}

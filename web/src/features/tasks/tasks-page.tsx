import { Segmented, Select } from "antd";
import { useCallback, useMemo } from "react";
import { Link, useNavigate } from "react-router";
import { usePaged } from "@/api/paged";
import { fetchTasks, operations, type TaskState as State, type Task } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { formatSpan, useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { LinkButton } from "@/ui/link-button";
import { Page } from "@/ui/page";
import { shortTaskId, taskPath } from "@/ui/paths";
import { Progress } from "@/ui/progress";
import { Guarded } from "@/ui/rights";
import { Empty, Failure } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { TaskState, taskProcesses, useTaskName } from "./task-state";

const states: readonly State[] = ["running", "paused", "failed", "done"];

const filterNames = ["state", "operation", "process", "user", "app"] as const;

export function Component() {
  const { tasks: text, terms } = useMessages();
  const navigate = useNavigate();
  const [state, setState] = useUrlValue("state");
  const [user] = useUrlValue("user");
  const [app] = useUrlValue("app");
  const [process] = useUrlValue("process");
  const [operation, setOperation] = useUrlValue("operation");
  const filter = useMemo(
    () => ({
      user: user || undefined,
      app: app || undefined,
      process: /^[^/]+\/.+/.test(process) ? process : undefined,
      operation: operations.find((known) => known === operation),
      state: states.find((known) => known === state),
    }),
    [user, app, process, operation, state],
  );
  const key = useMemo(() => ["tasks", "list", filter] as const, [filter]);
  const fetchPage = useCallback(
    (after: string | null, signal?: AbortSignal) => fetchTasks(filter, after, 100, signal),
    [filter],
  );
  const list = usePaged<Task>(key, fetchPage, 3000);
  const columns = useTaskColumns();
  return (
    <Page
      title={text.title}
      isFilled
      beside={<Freshness updatedAt={list.updatedAt} />}
      actions={
        <>
          <ExportButton
            name="tasks"
            rows={list.rows}
            fetchPage={(after) => fetchTasks(filter, after, 1000)}
            columns={[
              "task_id",
              "operations",
              "processes",
              "user",
              "app",
              "created_at",
              "finished_at",
              "total",
              "succeeded",
              "failed",
            ]}
          />
          <Guarded need="operate">
            {(isAllowed) => (
              <LinkButton to="/operate" type="primary" disabled={!isAllowed}>
                {text.operate}
              </LinkButton>
            )}
          </Guarded>
        </>
      }
    >
      <div className="filters">
        <Segmented
          value={state}
          onChange={setState}
          options={[
            { value: "", label: text.filter.allStates },
            ...states.map((value) => ({ value, label: text.filter[value] })),
          ]}
        />
        <Select
          allowClear
          style={{ minWidth: 120 }}
          placeholder={text.filter.operation}
          aria-label={text.filter.operation}
          value={operation || undefined}
          onChange={(value: string | undefined) => setOperation(value)}
          options={operations.map((value) => ({ value, label: terms.operation[value] }))}
        />
        <FilterInput name="process" label={text.filter.process} width={220} />
        {process && !filter.process && <span className="tone-warning">{text.filter.processHint}</span>}
        <FilterInput name="user" label={text.filter.user} />
        <FilterInput name="app" label={text.filter.app} />
      </div>
      {list.error && list.rows.length === 0 ? (
        <Failure error={list.error} onRetry={() => void list.retry()} />
      ) : (
        <DataTable
          label={text.title}
          isMain
          columns={columns}
          {...list.table}
          rowKey={(task) => task.task_id}
          onOpen={(task) => void navigate(taskPath(task.task_id))}
          empty={
            Object.values(filter).some((value) => value !== undefined) ? (
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

function useTaskColumns(): Column<Task>[] {
  const { tasks: text, common } = useMessages();
  const number = useNumbers();
  const nameOf = useTaskName();
  const { column } = text;
  return [
    {
      key: "operation",
      title: column.operation,
      width: "minmax(88px, 0.6fr)",
      render: (task) => <Link to={taskPath(task.task_id)}>{nameOf(task)}</Link>,
    },
    {
      key: "processes",
      title: column.processes,
      width: "minmax(100px, 1.6fr)",
      render: (task) => <span title={taskProcesses(task)}>{taskProcesses(task)}</span>,
    },
    { key: "state", title: column.state, width: "132px", render: (task) => <TaskState task={task} /> },
    {
      key: "progress",
      title: column.progress,
      width: "minmax(100px, 1.2fr)",
      from: 560,
      render: (task) => (
        <span className="meter">
          <Progress task={task} />
        </span>
      ),
    },
    {
      key: "targets",
      title: column.targets,
      width: "84px",
      isNumber: true,
      from: 420,
      render: (task) => number(task.total),
    },
    {
      key: "failed",
      title: column.failed,
      width: "76px",
      isNumber: true,
      from: 700,
      render: (task) => (task.failed > 0 ? number(task.failed) : <span className="muted">0</span>),
    },
    {
      key: "by",
      title: column.by,
      width: "minmax(110px, 1fr)",
      from: 700,
      render: (task) => (task.app && task.app !== task.user ? `${task.user} · ${task.app}` : task.user),
    },
    {
      key: "created",
      title: column.created,
      width: "110px",
      isNumber: true,
      from: 460,
      render: (task) => <Time at={task.created_at} />,
    },
    {
      key: "took",
      title: column.took,
      width: "80px",
      isNumber: true,
      from: 900,
      render: (task) => (task.finished_at ? formatSpan(task.finished_at - task.created_at, common) : ""),
    },
    {
      key: "id",
      title: column.id,
      width: "120px",
      from: 900,
      render: (task) => <span className="mono muted">{shortTaskId(task.task_id)}</span>,
    },
  ];
}

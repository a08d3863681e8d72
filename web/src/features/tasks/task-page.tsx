import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { type Task, taskQuery } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { formatSpan } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Facts, Page } from "@/ui/page";
import { shortTaskId, taskPath } from "@/ui/paths";
import { Failure, Skeleton } from "@/ui/states";
import { Time, useNow } from "@/ui/time";
import { useUrlNumber, useUrlValue } from "@/ui/url-state";
import { RolloutSteps } from "./rollout";
import { TargetOutput } from "./target-output";
import { TargetTable } from "./target-table";
import { TaskActions } from "./task-actions";
import { TaskGrid } from "./task-grid";
import { TaskState, taskProcesses, useTaskName } from "./task-state";
import "./tasks.css";

export function Component() {
  const { id = "" } = useParams();
  const { tasks: text } = useMessages();
  const query = useQuery(taskQuery(id));
  if (query.data) return <TaskView task={query.data} updatedAt={query.dataUpdatedAt} />;
  return (
    <Page title={shortTaskId(id)} crumbs={[{ label: text.title, to: "/tasks" }]}>
      {query.isPending ? (
        <Skeleton lines={10} />
      ) : (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      )}
    </Page>
  );
}

function TaskView({ task, updatedAt }: { task: Task; updatedAt: number }) {
  const { tasks: text } = useMessages();
  const nameOf = useTaskName();
  const open = useUrlNumber("target") ?? null;
  const [, setTarget] = useUrlValue("target");
  const setOpen = (index: number) => setTarget(String(index));
  return (
    <Page
      title={`${nameOf(task)} ${taskProcesses(task)}`}
      crumbs={[{ label: text.title, to: "/tasks" }]}
      isFilled
      beside={
        <>
          <TaskState task={task} />
          {!task.finished_at && <Freshness updatedAt={updatedAt} />}
        </>
      }
      actions={<TaskActions task={task} />}
    >
      <TaskFacts task={task} />
      {task.rollout && <RolloutSteps task={task} rollout={task.rollout} />}
      <div className="task-split">
        <TaskGrid task={task} onOpen={setOpen} />
        <TargetTable task={task} onOpen={setOpen} />
      </div>
      <TargetOutput id={task.task_id} index={open} onClose={() => setTarget(undefined)} />
    </Page>
  );
}

function TaskFacts({ task }: { task: Task }) {
  const { tasks: text, common } = useMessages();
  const now = useNow();
  const took = (task.finished_at ?? Math.max(now / 1000, task.created_at)) - task.created_at;
  const by = task.app && task.app !== task.user ? `${task.user} ${text.via(task.app)}` : task.user;
  const items: [string, React.ReactNode][] = [
    [text.column.id, <CopyText key="id" text={task.task_id} />],
    [text.by, by],
    [text.created, <Time key="created" at={task.created_at} />],
    [text.column.took, formatSpan(took, common)],
  ];
  if (task.retry_of) {
    items.push([
      text.retryOf,
      <Link key="retry" to={taskPath(task.retry_of)} className="mono">
        {shortTaskId(task.retry_of)}
      </Link>,
    ]);
  }
  return (
    <div className="panel">
      <Facts items={items} />
    </div>
  );
}

import { UnorderedListOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Button, Badge as Count, Popover } from "antd";
import { runningTasksQuery, type Task } from "@/api/tasks";
import { TaskLine } from "@/features/tasks/task-line";
import { useMessages } from "@/settings/context";
import { Freshness } from "@/ui/freshness";

/** Tasks that are under way, with their progress, from every page. */
export function RunningTasks() {
  const { shell, common } = useMessages();
  const query = useQuery(runningTasksQuery);
  const tasks = query.data ?? [];
  const label = !query.data
    ? query.error
      ? shell.tasksUnknown
      : common.loading
    : tasks.length > 0
      ? shell.tasksRunning(tasks.length)
      : shell.noTasksRunning;
  return (
    <Popover
      trigger="click"
      placement="bottomRight"
      arrow={false}
      content={<List tasks={tasks} label={label} updatedAt={query.dataUpdatedAt} />}
    >
      <Button type="text" aria-label={label} title={label}>
        <Count
          count={tasks.length}
          size="small"
          color="var(--accent)"
          styles={{ indicator: { color: "var(--on-accent)" } }}
        >
          <UnorderedListOutlined style={{ fontSize: 16 }} />
        </Count>
      </Button>
    </Popover>
  );
}

function List({ tasks, label, updatedAt }: { tasks: Task[]; label: string; updatedAt: number }) {
  return (
    <div className="who-card">
      <span className="row">
        <strong className="grow">{label}</strong>
        <Freshness updatedAt={updatedAt} />
      </span>
      {tasks.map((task) => (
        <TaskLine key={task.task_id} task={task} />
      ))}
    </div>
  );
}

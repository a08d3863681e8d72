import { UnorderedListOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Button, Badge as Count, Popover } from "antd";
import { Link } from "react-router";
import { runningTasksQuery, type Task } from "@/api/tasks";
import { taskProcesses, useTaskName } from "@/features/tasks/task-state";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { taskPath } from "@/ui/paths";
import { Progress } from "@/ui/progress";

/** Tasks that are under way, with their progress, from every page. */
export function RunningTasks() {
  const { shell } = useMessages();
  const tasks = useQuery(runningTasksQuery).data ?? [];
  const label = tasks.length > 0 ? shell.tasksRunning(tasks.length) : shell.noTasksRunning;
  return (
    <Popover
      trigger="click"
      placement="bottomRight"
      arrow={false}
      content={<List tasks={tasks} label={label} />}
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

function List({ tasks, label }: { tasks: Task[]; label: string }) {
  const nameOf = useTaskName();
  const number = useNumbers();
  return (
    <div className="who-card">
      <strong>{label}</strong>
      {tasks.map((task) => (
        <Link key={task.task_id} to={taskPath(task.task_id)} className="running-task">
          <span className="row">
            <span className="grow truncate" title={taskProcesses(task)}>
              {nameOf(task)} {taskProcesses(task)}
            </span>
            <span className="muted">
              {number(task.total - task.pending)} / {number(task.total)}
            </span>
          </span>
          <Progress task={task} />
        </Link>
      ))}
    </div>
  );
}

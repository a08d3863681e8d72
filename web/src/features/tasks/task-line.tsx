import { Link } from "react-router";
import type { Task } from "@/api/tasks";
import { useNumbers } from "@/ui/format";
import { taskPath } from "@/ui/paths";
import { Progress } from "@/ui/progress";
import { TaskState, taskProcesses, useTaskName } from "./task-state";
import "./task-line.css";

/** A task under way in short: what, how far, and a way to its page. */
export function TaskLine({ task }: { task: Task }) {
  const nameOf = useTaskName();
  const number = useNumbers();
  return (
    <Link to={taskPath(task.task_id)} className="task-line">
      <span className="row">
        <span className="grow truncate" title={taskProcesses(task)}>
          {nameOf(task)} {taskProcesses(task)}
        </span>
        <TaskState task={task} />
        <span className="muted">
          {number(task.total - task.pending)} / {number(task.total)}
        </span>
      </span>
      <Progress task={task} />
    </Link>
  );
}

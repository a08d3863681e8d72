import type { Task } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Badge } from "@/ui/phase";

/** One word for a task: under way, paused, cancelled, succeeded, or how many failed. */
export function TaskState({ task }: { task: Task }) {
  const { tasks: text } = useMessages();
  const number = useNumbers();
  if (task.rollout?.state === "paused") return <Badge tone="warning">{text.state.paused}</Badge>;
  if (!task.finished_at) return <Badge tone="changing">{text.state.running}</Badge>;
  if (task.cancelled_at) return <Badge tone="idle">{text.state.cancelled}</Badge>;
  if (task.failed > 0) return <Badge tone="failed">{text.state.failed(number(task.failed))}</Badge>;
  return <Badge tone="running">{text.state.succeeded}</Badge>;
}

/** What a task operates, as far as the server names it. */
export function taskProcesses(task: Task): string {
  const names = (task.processes ?? []).join(", ");
  return task.has_more_processes ? `${names}, …` : names;
}

export function useTaskName(): (task: Task) => string {
  const { terms, tasks } = useMessages();
  return (task) =>
    (task.operations ?? []).map((operation) => terms.operation[operation]).join(", ") || tasks.task;
}

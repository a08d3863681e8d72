import type { Task } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import "./progress.css";

type Counts = Pick<Task, "total" | "pending" | "succeeded" | "failed">;

/** How many targets succeeded, failed and are open, as one bar. */
export function Progress({ task }: { task: Counts }) {
  const { terms } = useMessages();
  const share = (count: number) => `${task.total > 0 ? (100 * count) / task.total : 0}%`;
  const label = `${terms.outcome.succeeded} ${task.succeeded}, ${terms.outcome.failed} ${task.failed}, ${terms.outcome.pending} ${task.pending}`;
  return (
    <span className="progress-bar" role="img" aria-label={label} title={label}>
      <span className="progress-done" style={{ width: share(task.succeeded) }} />
      <span className="progress-failed" style={{ width: share(task.failed) }} />
    </span>
  );
}

import { useMemo } from "react";
import type { Target, Task } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { CellGrid, Legend } from "@/ui/cell-grid";
import { useNumbers } from "@/ui/format";
import { cellToneOf, OutcomeBadge } from "@/ui/outcome";
import { Progress } from "@/ui/progress";
import { Skeleton } from "@/ui/states";

type Props = { task: Task; targets: Target[]; isLoading: boolean; onOpen: (index: number) => void };

/** The counts of a task and one cell for each of its targets. */
export function TaskGrid({ task, targets, isLoading, onOpen }: Props) {
  const { tasks: text, terms } = useMessages();
  const number = useNumbers();
  const tones = useMemo(() => targets.map((target) => cellToneOf(target.code)), [targets]);
  return (
    <section className="panel task-grid" aria-label={text.targets}>
      <div className="task-counts">
        <span className="tone-running">
          <b>{number(task.succeeded)}</b> {terms.outcome.succeeded}
        </span>
        <span className={task.failed > 0 ? "tone-failed" : "muted"}>
          <b>{number(task.failed)}</b> {terms.outcome.failed}
        </span>
        <span className={task.pending > 0 ? "tone-changing" : "muted"}>
          <b>{number(task.pending)}</b> {terms.outcome.pending}
        </span>
      </div>
      <Progress task={task} />
      {isLoading ? (
        <Skeleton lines={5} />
      ) : (
        <CellGrid
          label={text.gridLabel(number(task.total), number(task.succeeded), number(task.failed))}
          tones={tones}
          onOpen={onOpen}
          describe={(index) => <Tip target={targets[index]} />}
        />
      )}
      <Legend
        items={[
          ["running", terms.outcome.succeeded],
          ["failed", terms.outcome.failed],
          ["warning", `${terms.outcome.absent}, ${terms.outcome.forbidden}`],
          ["idle", `${terms.outcome.cancelled}, ${terms.outcome.skipped}`],
          ["empty", terms.outcome.pending],
        ]}
      />
      <p className="muted task-hint">{text.hint}</p>
    </section>
  );
}

function Tip({ target }: { target: Target | undefined }) {
  if (!target) return null;
  return (
    <>
      <div className="row">
        <span className="mono">{target.host}</span>
        <OutcomeBadge target={target} />
      </div>
      <div>{target.process}</div>
      {target.code !== 0 && <div className="muted">{target.message.slice(0, 200)}</div>}
    </>
  );
}

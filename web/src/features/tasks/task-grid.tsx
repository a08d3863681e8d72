import { useMemo, useState } from "react";
import type { Task } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { CellGrid, type CellTone, Legend } from "@/ui/cell-grid";
import { useNumbers } from "@/ui/format";
import { OutcomeBadge } from "@/ui/outcome";
import { Progress } from "@/ui/progress";
import { Failure, Skeleton } from "@/ui/states";
import { useGrid, useTargetAt } from "./use-targets";

/** The letters of a grid, as docs/native-api.md names them. */
const letters: Record<string, CellTone> = {
  p: "empty",
  r: "changing",
  s: "running",
  f: "failed",
  c: "idle",
  k: "idle",
  m: "warning",
  x: "warning",
  a: "warning",
};

export function tonesOf(states: string): CellTone[] {
  return Array.from(states, (letter) => letters[letter] ?? "idle");
}

type Props = { task: Task; onOpen: (index: number) => void };

/** The counts of a task and one cell for each of its targets. */
export function TaskGrid({ task, onOpen }: Props) {
  const { tasks: text, terms, common } = useMessages();
  const number = useNumbers();
  const { data, error, refetch } = useGrid(task);
  const [hovered, setHovered] = useState<number | null>(null);
  const tones = useMemo(() => tonesOf(data?.states ?? ""), [data]);
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
      {data ? (
        <CellGrid
          label={text.gridLabel(number(task.total), number(task.succeeded), number(task.failed))}
          tones={tones}
          onOpen={onOpen}
          onHover={setHovered}
          describe={(index) => <Tip task={task} index={index} version={data.version} />}
        />
      ) : error ? (
        <Failure error={error} onRetry={() => void refetch()} />
      ) : (
        <Skeleton lines={5} />
      )}
      <Legend
        items={[
          ["running", terms.outcome.succeeded],
          ["failed", terms.outcome.failed],
          ["warning", common.list([terms.outcome.absent, terms.outcome.cordoned, terms.outcome.forbidden])],
          ["idle", common.list([terms.outcome.cancelled, terms.outcome.skipped])],
          ["changing", text.cell.released],
          ["empty", text.cell.waits],
        ]}
      />
      <p className="muted task-hint">
        {hovered === null ? text.hint : text.targetNumber(number(hovered + 1))}
      </p>
    </section>
  );
}

function Tip({ task, index, version }: { task: Task; index: number; version: number }) {
  const { terms } = useMessages();
  const target = useTargetAt(task.task_id, index, version);
  if (!target) return <span className="muted">…</span>;
  return (
    <>
      <div className="row">
        <span className="mono">{target.host}</span>
        <OutcomeBadge target={target} released={task.rollout?.released ?? task.total} />
      </div>
      <div>{target.process}</div>
      {target.code !== 0 && target.code !== 115 && (
        <div className="muted">{terms.told(target).slice(0, 200)}</div>
      )}
    </>
  );
}

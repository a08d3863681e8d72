import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { fetchAllTargets, fetchTargets, type Target, type Task } from "@/api/tasks";

const MANY = 2000;

/**
 * All targets of a task. Read once in full; while the task is under way, the outcomes that are still open are
 * asked for again: a page at a time where there are many, so that 30,000 targets cost little.
 */
export function useTargets(task: Task | undefined) {
  const id = task?.task_id ?? "";
  const all = useQuery({
    queryKey: ["task", id, "targets"],
    queryFn: async ({ signal }) => (await fetchAllTargets(id, undefined, signal)).rows,
    enabled: task !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const [fresh, setFresh] = useState<ReadonlyMap<number, Target>>(new Map());
  const progress = useRef({ id, known: -1, isBusy: false });
  const done = task ? task.succeeded + task.failed : 0;

  useEffect(() => {
    if (progress.current.id !== id) {
      progress.current = { id, known: -1, isBusy: false };
      setFresh(new Map());
    }
    const state = progress.current;
    if (!all.data || state.isBusy || done === state.known) return;
    state.isBusy = true;
    const take = (next: Map<number, Target>) => {
      if (state !== progress.current) return;
      state.known = done;
      if (next.size > 0) setFresh((now) => new Map([...now, ...next]));
    };
    void refreshOpen(id, all.data, fresh)
      .then(take, () => undefined)
      .finally(() => {
        state.isBusy = false;
      });
  });

  const targets = useMemo(() => {
    if (!all.data || fresh.size === 0) return all.data ?? [];
    return all.data.map((target) => fresh.get(target.index) ?? target);
  }, [all.data, fresh]);
  return { targets, isLoading: all.isPending, error: all.error, retry: all.refetch };
}

/** Pages that hold open targets; the rest has its final outcome. */
async function refreshOpen(
  id: string,
  targets: Target[],
  fresh: ReadonlyMap<number, Target>,
): Promise<Map<number, Target>> {
  const isOpen = (target: Target) => (fresh.get(target.index) ?? target).code === 115;
  const open = targets.filter(isOpen);
  const pages = new Set(open.map((target) => Math.floor(target.index / 1000)));
  const next = new Map<number, Target>();
  const wanted = targets.length > MANY ? [...pages].slice(0, 8) : [...pages];
  for (const page of wanted) {
    const after = page === 0 ? null : String(page * 1000 - 1);
    const { rows } = await fetchTargets(id, undefined, after, 1000);
    for (const row of rows) if (row.code !== 115) next.set(row.index, row);
  }
  return next;
}

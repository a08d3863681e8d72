import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo } from "react";
import { usePaged } from "@/api/paged";
import {
  fetchAllTargets,
  fetchTargets,
  gridQuery,
  type Target,
  type TargetState,
  type Task,
} from "@/api/tasks";

const TIP_PAGE = 100;

/** The grid of a task, asked for anew whenever the task has come further: a letter a target, so 30,000 cost 30 kB. */
export function useGrid(task: Task) {
  const client = useQueryClient();
  const query = useQuery(gridQuery(task.task_id));
  const progress = task.total - task.pending + (task.rollout?.released ?? 0);
  const known = query.data?.version;
  useEffect(() => {
    if (known === undefined || known >= progress) return;
    void client.invalidateQueries({ queryKey: gridQuery(task.task_id).queryKey });
  }, [client, task.task_id, progress, known]);
  return query;
}

/** A target of the grid, by its index; read with its neighbours, so that a moving pointer asks rarely. */
export function useTargetAt(
  id: string,
  index: number | null,
  version: number | undefined,
): Target | undefined {
  const page = index === null ? null : Math.floor(index / TIP_PAGE);
  const query = useQuery({
    queryKey: ["task", id, "page", page, version],
    queryFn: async ({ signal }) => {
      const after = page ? String(page * TIP_PAGE - 1) : null;
      return (await fetchTargets(id, undefined, after, TIP_PAGE, signal)).rows;
    },
    enabled: page !== null,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
  return query.data?.find((target) => target.index === index);
}

/**
 * The targets of a task as rows, page by page; where text is searched for, all of them are read once, because the server
 * cannot search in them.
 */
export function useTargetRows(task: Task, state: TargetState | undefined, search: string) {
  const id = task.task_id;
  const wanted = search.toLowerCase();
  const isSearch = wanted !== "";
  const progress = task.total - task.pending;
  const key = useMemo(() => ["task", id, "rows", state, isSearch] as const, [id, state, isSearch]);
  const fetchPage = useCallback(
    async (after: string | null, signal?: AbortSignal) =>
      isSearch ? { rows: [], next: null } : fetchTargets(id, state, after, undefined, signal),
    [id, state, isSearch],
  );
  const list = usePaged<Target>(key, fetchPage, task.finished_at ? 60_000 : 2000);
  const { refresh } = list;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the last outcomes come with the end of the task
  useEffect(() => {
    void refresh().catch(() => undefined);
  }, [refresh, task.finished_at]);
  const all = useQuery({
    queryKey: ["task", id, "all", state, progress],
    queryFn: async ({ signal }) => (await fetchAllTargets(id, state, signal)).rows,
    enabled: isSearch,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: keepPreviousData,
  });
  const found = useMemo(
    () =>
      (all.data ?? []).filter((target) =>
        `${target.host} ${target.process} ${target.message}`.toLowerCase().includes(wanted),
      ),
    [all.data, wanted],
  );
  if (!isSearch) return list;
  const table = { rows: found, isLoading: all.isPending };
  return { rows: found, table, error: all.error, retry: all.refetch };
}

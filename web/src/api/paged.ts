import {
  type InfiniteData,
  keepPreviousData,
  type QueryKey,
  useInfiniteQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";
import type { Event } from "./events";
import { eventStream } from "./stream";

/** `total` is how many rows there are on all pages, where the server counts them. */
export type Page<Row> = { rows: Row[]; next: string | null; total?: number };
type Cursor = string | null;
type FetchPage<Row> = (after: Cursor, signal?: AbortSignal) => Promise<Page<Row>>;

/** What is on the screen at first is asked for again and again, so it is no more than needed. */
const FIRST_ROWS = 100;
const FURTHER_ROWS = 500;
export const pageLimit = (after: Cursor) => (after === null ? FIRST_ROWS : FURTHER_ROWS);

/** Whether an event tells that a row has changed. */
export type Concerns<Row> = (row: Row, event: Event) => boolean;

/** What is shown again is asked for anew unless it is younger than this. */
const STALE_MS = 10_000;

/** How long a row that changed waits for further changes; also how often a busy list is asked for at most. */
const SETTLE_MS = 1000;

/**
 * A list that the server hands out page by page. The pages that are on the screen are fetched again every `refreshMs`,
 * and soon after an event that concerns one of the rows there; the others keep what they had, so a list of 100,000 rows
 * costs no more than a short one.
 */
export function usePaged<Row>(
  key: QueryKey,
  fetchPage: FetchPage<Row>,
  refreshMs = 5000,
  concerns?: Concerns<Row>,
) {
  const client = useQueryClient();
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => fetchPage(pageParam, signal),
    initialPageParam: null as Cursor,
    getNextPageParam: (last: Page<Row>) => last.next,
    staleTime: Math.min(refreshMs, STALE_MS),
    refetchOnWindowFocus: false,
    meta: { isPaged: true },
    // Until the answer to another filter is there, the rows of the one before stay.
    placeholderData: keepPreviousData,
  });
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.rows) ?? [], [query.data]);
  const visible = useRef<[number, number]>([0, 0]);
  const onVisible = useCallback((first: number, last: number) => {
    visible.current = [first, last];
  }, []);

  const refresh = useCallback(async () => {
    const held = client.getQueryData<InfiniteData<Page<Row>, Cursor>>(key);
    if (!held || document.hidden) return;
    for (const index of pagesWithin(held.pages, visible.current)) {
      const after = held.pageParams[index] ?? null;
      const page = await fetchPage(after);
      client.setQueryData<InfiniteData<Page<Row>, Cursor>>(key, (now) =>
        replacePage(now, index, after, page),
      );
    }
  }, [client, key, fetchPage]);

  useEffect(() => {
    const timer = setInterval(() => refresh().catch(() => undefined), refreshMs);
    return () => clearInterval(timer);
  }, [refresh, refreshMs]);

  useEffect(() => {
    if (!concerns) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const unlisten = eventStream.listen((events) => {
      if (timer !== undefined) return;
      const held = client.getQueryData<InfiniteData<Page<Row>, Cursor>>(key);
      const [first, last] = visible.current;
      const shown = held?.pages.flatMap((page) => page.rows).slice(first, last + 1) ?? [];
      if (!shown.some((row) => events.some((event) => concerns(row, event)))) return;
      timer = setTimeout(() => {
        timer = undefined;
        refresh().catch(() => undefined);
      }, SETTLE_MS);
    });
    return () => {
      unlisten();
      clearTimeout(timer);
    };
  }, [client, key, refresh, concerns]);

  const isComplete = query.isSuccess && !query.isPlaceholderData && !query.hasNextPage;
  const isLoading = query.isLoading || (query.isPlaceholderData && rows.length === 0);
  const { isFetchingNextPage: isFetchingMore, fetchNextPage } = query;
  return {
    rows,
    /** What a table of these rows is given. */
    table: {
      rows,
      isLoading,
      /** The rows are those of the filter before. */
      isOutdated: query.isPlaceholderData,
      isFetchingMore,
      onVisible,
      onEnd: isComplete || isFetchingMore ? undefined : () => void fetchNextPage(),
    },
    total: query.data?.pages[0]?.total,
    error: query.error,
    isLoading,
    isComplete,
    updatedAt: query.dataUpdatedAt,
    retry: query.refetch,
    refresh,
  };
}

function pagesWithin<Row>(pages: Page<Row>[], [first, last]: [number, number]): number[] {
  const indices: number[] = [];
  let start = 0;
  pages.forEach((page, index) => {
    const end = start + page.rows.length;
    if (start <= last && end > first) indices.push(index);
    start = end;
  });
  return indices.length > 0 ? indices : [0];
}

/** The page changes in place; a page whose end moved keeps its cursor, so that the ones behind it still fit. */
function replacePage<Row>(
  held: InfiniteData<Page<Row>, Cursor> | undefined,
  index: number,
  after: Cursor,
  page: Page<Row>,
): InfiniteData<Page<Row>, Cursor> | undefined {
  if (!held || (held.pageParams[index] ?? null) !== after) return held;
  const isLast = index === held.pages.length - 1;
  const pages = held.pages.slice(0, index + 1);
  pages[index] = page;
  const moved = !isLast && page.next !== held.pages[index]?.next;
  if (moved) return { pages, pageParams: held.pageParams.slice(0, index + 1) };
  return { pages: [...pages, ...held.pages.slice(index + 1)], pageParams: held.pageParams };
}

/** All rows, page after page; at most `max`. */
export async function fetchAll<Row>(
  fetchPage: FetchPage<Row>,
  max: number,
  onProgress?: (count: number) => void,
): Promise<{ rows: Row[]; isComplete: boolean }> {
  const rows: Row[] = [];
  let after: Cursor = null;
  do {
    const page: Page<Row> = await fetchPage(after);
    rows.push(...page.rows);
    onProgress?.(rows.length);
    after = page.next;
  } while (after !== null && rows.length < max);
  return { rows, isComplete: after === null };
}

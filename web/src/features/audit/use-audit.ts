import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type AuditEntry, type AuditFilter, fetchAudit } from "@/api/server";

const PAGE = 200;
const LOOKED_AT_MAX = 1000;

/**
 * The log, newest first. The server hands it out oldest first, but its numbers have no gaps, so a page is asked
 * for by the numbers that it covers.
 */
export function useAudit(filter: AuditFilter, last: number | undefined, first: number) {
  const isNarrow = Object.values(filter).some((value) => value !== undefined);
  const span = isNarrow ? LOOKED_AT_MAX * 5 : PAGE;
  const query = useInfiniteQuery({
    queryKey: ["audit", "entries", filter, last],
    enabled: last !== undefined,
    initialPageParam: last ?? 0,
    queryFn: async ({ pageParam, signal }) => {
      const after = Math.max(first, pageParam - span);
      const page = await fetchAudit(filter, after, LOOKED_AT_MAX, signal);
      return page.entries.filter((entry) => entry.seq <= pageParam).reverse();
    },
    getNextPageParam: (_, __, until: number) => (until - span > first ? until - span : undefined),
  });
  const entries = useMemo((): AuditEntry[] => query.data?.pages.flat() ?? [], [query.data]);
  return { ...query, entries };
}

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type AuditEntry, type AuditFilter, fetchAudit } from "@/api/server";

const PAGE = 200;

/** The log, newest first. */
export function useAudit(filter: AuditFilter) {
  const query = useInfiniteQuery({
    queryKey: ["audit", "entries", filter],
    initialPageParam: undefined as number | undefined,
    queryFn: ({ pageParam, signal }) => fetchAudit(filter, pageParam, PAGE, signal),
    getNextPageParam: (last) => (last.next > 0 ? last.next : undefined),
    refetchOnWindowFocus: false,
    // Who has scrolled down reads; the pages stay as they are, and the page says how old they are.
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : 15_000),
  });
  const entries = useMemo(
    (): AuditEntry[] => query.data?.pages.flatMap((page) => page.entries) ?? [],
    [query.data],
  );
  return { ...query, entries };
}

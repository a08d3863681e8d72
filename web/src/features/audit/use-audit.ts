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
  });
  const entries = useMemo(
    (): AuditEntry[] => query.data?.pages.flatMap((page) => page.entries) ?? [],
    [query.data],
  );
  return { ...query, entries };
}

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { allHostsQuery } from "@/api/hosts";
import { type OperationRequest, type PlannedTarget, planOperation } from "@/api/tasks";

export type Planned = PlannedTarget & { isAway: boolean };
export type Plan = { targets: Planned[]; refused: number; away: number; notes: number; hosts: number };

/** What the call would do. */
export function usePlan(request: OperationRequest | undefined) {
  const hosts = useQuery(allHostsQuery).data?.rows;
  const query = useQuery({
    queryKey: ["plan", request],
    queryFn: async ({ signal }) => (request ? (await planOperation(request, signal)).targets : []),
    enabled: request !== undefined,
    staleTime: 0,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });
  const plan = useMemo((): Plan | null => {
    if (!query.data) return null;
    const away = new Set(hosts?.filter((host) => !host.online).map((host) => host.host));
    const targets = query.data.map((target) => ({ ...target, isAway: away.has(target.host) }));
    return {
      targets,
      refused: targets.filter((target) => target.refused).length,
      away: targets.filter((target) => target.isAway && !target.refused).length,
      notes: targets.filter((target) => target.note).length,
      hosts: new Set(targets.map((target) => target.host)).size,
    };
  }, [query.data, hosts]);
  return { plan, isPlanning: query.isFetching, error: query.error, plannedAt: query.dataUpdatedAt };
}

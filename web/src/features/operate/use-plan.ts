import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { allHostsQuery } from "@/api/hosts";
import { type OperationRequest, type PlannedTarget, planOperation } from "@/api/tasks";

export type Planned = PlannedTarget & { isAway: boolean };
export type Plan = { targets: Planned[]; refused: number; away: number; notes: number; hosts: number };

const AT_ONCE = 4;

/** What the calls would do, all of them together. */
export function usePlan(requests: OperationRequest[]) {
  const hosts = useQuery(allHostsQuery).data?.rows;
  const query = useQuery({
    queryKey: ["plan", requests],
    queryFn: async ({ signal }) => {
      const targets: PlannedTarget[] = [];
      for (let at = 0; at < requests.length; at += AT_ONCE) {
        const plans = requests.slice(at, at + AT_ONCE).map((request) => planOperation(request, signal));
        for (const plan of await Promise.all(plans)) targets.push(...plan.targets);
      }
      return targets;
    },
    enabled: requests.length > 0,
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

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type OperationRequest, type PlannedTarget, planOperation } from "@/api/tasks";

/** What would become of a target, as far as it is known now. */
export type Fate = "runs" | "away" | "refused";
export type Plan = {
  targets: PlannedTarget[];
  counts: Record<Fate, number>;
  notes: number;
  hosts: number;
};

export function fateOf(target: PlannedTarget): Fate {
  if (target.refused) return "refused";
  return target.online === false ? "away" : "runs";
}

/** What the call would do. */
export function usePlan(request: OperationRequest | undefined) {
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
    const counts = { runs: 0, away: 0, refused: 0 };
    for (const target of query.data) counts[fateOf(target)] += 1;
    return {
      targets: query.data,
      counts,
      notes: query.data.filter((target) => target.note).length,
      hosts: new Set(query.data.map((target) => target.host)).size,
    };
  }, [query.data]);
  return {
    plan,
    isPlanning: query.isFetching,
    error: query.error,
    plannedAt: query.dataUpdatedAt,
    planAgain: () => void query.refetch(),
  };
}

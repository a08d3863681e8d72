import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type OperationRequest, type PlannedTarget, planOperation } from "@/api/tasks";

/** What would become of a target, as far as it is known now. */
export const fates = ["runs", "away", "cordoned", "forbidden", "refused"] as const;
export type Fate = (typeof fates)[number];
export type Plan = {
  targets: PlannedTarget[];
  counts: Record<Fate, number>;
  notes: number;
  hosts: number;
};

const CORDONED = 128;
const FORBIDDEN = 403;

export function fateOf(target: PlannedTarget): Fate {
  if (target.refused?.code === CORDONED) return "cordoned";
  if (target.refused?.code === FORBIDDEN) return "forbidden";
  if (target.refused) return "refused";
  return target.online === false ? "away" : "runs";
}

export function planOf(targets: PlannedTarget[]): Plan {
  const counts = { runs: 0, away: 0, cordoned: 0, forbidden: 0, refused: 0 };
  for (const target of targets) counts[fateOf(target)] += 1;
  return {
    targets,
    counts,
    notes: targets.filter((target) => target.note).length,
    hosts: new Set(targets.map((target) => target.host)).size,
  };
}

/** What the calls would do. */
export function usePlan(requests: OperationRequest[] | undefined) {
  const query = useQuery({
    queryKey: ["plan", requests],
    queryFn: async ({ signal }) => {
      const plans = (requests ?? []).map((request) => planOperation(request, signal));
      return (await Promise.all(plans)).flatMap((plan) => plan.targets);
    },
    enabled: requests !== undefined,
    staleTime: 0,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });
  const plan = useMemo(() => (query.data ? planOf(query.data) : null), [query.data]);
  return {
    plan,
    isPlanning: query.isFetching,
    error: query.error,
    plannedAt: query.dataUpdatedAt,
    planAgain: () => void query.refetch(),
  };
}

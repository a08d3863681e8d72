import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { fetchAll } from "@/api/paged";
import { fetchProcesses } from "@/api/processes";
import {
  type ExactTarget,
  fetchAllTargets,
  type Operation,
  type OperationRequest,
  operations,
} from "@/api/tasks";
import { parseFilter } from "@/features/processes/filter";
import { outcomeOf } from "@/ui/outcome";
import { type Found, type OperateForm, requestOf, requestsFor } from "./request";

/** An operation on more than this is a case for a selector. */
export const MATCHING_MAX = 100_000;

/** The instances that a filter matches now. */
async function findMatching(match: string, signal: AbortSignal): Promise<ExactTarget[]> {
  const filter = parseFilter(new URLSearchParams(match));
  const { rows } = await fetchAll((after) => fetchProcesses(filter, after, 1000, signal), MATCHING_MAX);
  return rows.map(({ process, host }) => ({ process, host }));
}

/** What failed in a task, by what was asked of it. */
async function findFailed(task: string, signal: AbortSignal): Promise<Found[]> {
  const { rows } = await fetchAllTargets(task, undefined, signal);
  const found = new Map<Operation, ExactTarget[]>();
  for (const { operation, process, host, code } of rows) {
    const outcome = outcomeOf(code);
    if (outcome === "succeeded" || outcome === "pending") continue;
    const kind = operations.find((known) => known === operation);
    if (!kind) continue;
    const targets = found.get(kind) ?? [];
    found.set(kind, targets);
    targets.push({ process, host });
  }
  return [...found].map(([operation, targets]) => ({ operation, targets }));
}

/** The calls that the form stands for; some name their targets by a filter or a task, which are looked up first. */
export function useRequests(form: OperateForm) {
  const isLookedUp = form.by === "matching" || form.by === "retry";
  const { match, retry, operation } = form;
  const lookUp = useQuery({
    queryKey: ["operate-targets", match, retry],
    queryFn: async ({ signal }) =>
      retry ? findFailed(retry, signal) : [{ operation, targets: await findMatching(match ?? "", signal) }],
    enabled: isLookedUp,
    staleTime: 0,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  const requests = useMemo((): OperationRequest[] | undefined => {
    if (!isLookedUp) {
      const request = requestOf(form);
      return request && [request];
    }
    const found = lookUp.data?.map((each) => (retry ? each : { ...each, operation }));
    return found && requestsFor(form, found);
  }, [form, isLookedUp, lookUp.data, retry, operation]);
  return {
    requests,
    isLookingUp: isLookedUp && lookUp.isPending,
    error: isLookedUp ? lookUp.error : null,
    lookUpAgain: lookUp.refetch,
  };
}

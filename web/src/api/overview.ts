import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";

export type Overview = Schemas["Overview"];
export type Attention = Schemas["Attention"];
export type FleetMap = Schemas["FleetMap"];
export type HostState = Schemas["HostState"];
export type Histogram = Schemas["EventHistogram"];

/**
 * Sums over all processes, so an untouched page asks for them seldom, and for both at once. They are asked for anew when
 * the stream says that something happened; the interval is for what no event tells.
 */
export const SUMS_EVERY_MS = 30_000;

export const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/overview", { signal })),
  refetchInterval: SUMS_EVERY_MS,
});

export const fleetMapQuery = queryOptions({
  queryKey: ["overview-map"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/overview/map", { signal })),
  refetchInterval: SUMS_EVERY_MS,
});

/** Types of events that are told over time. */
export const troubleTypes = {
  restarts: ["restart_succeeded"],
  evictions: ["limit_exceeded", "pool_limit_exceeded"],
  failures: ["restart_failed", "cancel_restart"],
  offline: ["agent_offline"],
} as const;

const allTypes: readonly string[] = Object.values(troubleTypes).flat();
export const isTrouble = (type: string) => allTypes.includes(type);
const STEP_SECS = 1800;
const STEPS = 48;

function countEvents(since: number, until: number, step: number, signal?: AbortSignal) {
  const query = { since, until, step, type: allTypes.join(",") };
  return data(api.GET("/api/v1/events/histogram", { params: { query }, signal }));
}

/** Trouble over the last 24 hours by the half hour, and of the last hour alone. */
export const troubleQuery = queryOptions({
  queryKey: ["trouble"],
  queryFn: async ({ signal }) => {
    const now = Math.ceil(Date.now() / 1000);
    const until = Math.ceil(now / STEP_SECS) * STEP_SECS;
    const [day, hour] = await Promise.all([
      countEvents(until - STEPS * STEP_SECS, until, STEP_SECS, signal),
      countEvents(now - 3600, now, 3600, signal),
    ]);
    return { day, hour, steps: STEPS };
  },
  refetchInterval: 60_000,
});

/** How many events of some types a histogram counts, step by step. */
export function sumSeries(histogram: Histogram, types: readonly string[], steps: number): number[] {
  const sums = Array.from({ length: steps }, () => 0);
  for (const type of types) {
    histogram.series[type]?.forEach((count, index) => {
      sums[index] = (sums[index] ?? 0) + count;
    });
  }
  return sums;
}

/** Processes, hosts, namespaces and tasks by part of their names. */
export const searchQuery = (text: string) =>
  queryOptions({
    queryKey: ["search", text],
    queryFn: ({ signal }) =>
      data(api.GET("/api/v1/search", { params: { query: { q: text, limit: 8 } }, signal })),
    enabled: text !== "",
    staleTime: 5000,
    gcTime: 30_000,
    placeholderData: keepPreviousData,
  });

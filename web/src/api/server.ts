import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { type Page, pageLimit } from "./paged";

export type AuditEntry = Schemas["AuditView"];
export type Pool = Schemas["PoolView"];
export type AuditFilter = { app?: string; user?: string; action?: string; since?: number; until?: number };

export const serverQuery = queryOptions({
  queryKey: ["server"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/server", { signal })),
  refetchInterval: 60_000,
});

export const storageQuery = queryOptions({
  queryKey: ["storage"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/storage", { signal })),
});

export const auditVerdictQuery = queryOptions({
  queryKey: ["audit", "verdict"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/audit/verify", { signal })),
  staleTime: 60_000,
});

/** Newest first; `before` is `next` of the page before. */
export async function fetchAudit(
  filter: AuditFilter,
  before: number | undefined,
  limit: number,
  signal?: AbortSignal,
) {
  const params = { query: { ...filter, order: "desc" as const, before, limit } };
  return data(api.GET("/api/v1/audit", { params, signal }));
}

/** One entry, by its number. */
export const auditEntryQuery = (seq: number) =>
  queryOptions({
    queryKey: ["audit", "entry", seq],
    queryFn: async ({ signal }) => {
      const [entry] = (await fetchAudit({}, seq + 1, 1, signal)).entries;
      return entry?.seq === seq ? entry : null;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });

export type PoolFilter = { namespace?: string; host?: string };

/** Pools with what their members use. */
export async function fetchPools(
  filter: PoolFilter,
  after: string | null,
  limit = pageLimit(after),
  signal?: AbortSignal,
): Promise<Page<Pool>> {
  const query = { ...filter, usage: true, after: after ?? undefined, limit };
  const page = await data(api.GET("/api/v1/pools", { params: { query }, signal }));
  return { rows: page.pools, next: page.next ?? null };
}

const POOLS_OF_HOST_MAX = 1000;

/** The pools of one host. */
export const hostPoolsQuery = (filter: PoolFilter & { host: string }) =>
  queryOptions({
    queryKey: ["pools", "host", filter],
    queryFn: async ({ signal }) => (await fetchPools(filter, null, POOLS_OF_HOST_MAX, signal)).rows,
    refetchInterval: 5000,
  });

export type PlannedPool = Schemas["PlannedPool"];

/** What setting pools would do, one row for each pool on each host. */
export const planPools = (body: Schemas["SetPools"], signal?: AbortSignal) =>
  data(api.POST("/api/v1/pools/plan", { body, signal }));
export const planPoolDeletion = (namespace: string, id: string, hosts: string[], signal?: AbortSignal) => {
  const params = { path: { namespace, id } };
  return data(api.POST("/api/v1/pools/{namespace}/{id}/delete/plan", { params, body: { hosts }, signal }));
};
export const setPools = (body: Schemas["SetPools"]) => data(api.PUT("/api/v1/pools", { body }));
export const deletePool = (namespace: string, id: string, hosts: string[]) =>
  data(
    api.DELETE("/api/v1/pools/{namespace}/{id}", { params: { path: { namespace, id } }, body: { hosts } }),
  );

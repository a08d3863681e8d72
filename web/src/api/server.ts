import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";

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

export const poolsQuery = (filter: { namespace?: string; host?: string }, usage: boolean) =>
  queryOptions({
    queryKey: ["pools", filter, usage],
    queryFn: async ({ signal }) =>
      (await data(api.GET("/api/v1/pools", { params: { query: { ...filter, usage } }, signal }))).pools,
    refetchInterval: 5000,
  });

export const setPools = (body: Schemas["SetPools"]) => data(api.PUT("/api/v1/pools", { body }));
export const deletePool = (namespace: string, id: string, hosts: string[]) =>
  data(
    api.DELETE("/api/v1/pools/{namespace}/{id}", { params: { path: { namespace, id } }, body: { hosts } }),
  );

import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { fetchAll, type Page, pageLimit } from "./paged";

export type Host = Schemas["HostView"];
export type HostFilter = {
  business?: number;
  cloud?: number;
  online?: boolean;
  version?: string;
  q?: string;
};

export async function fetchHosts(
  filter: HostFilter,
  after: string | null,
  limit = pageLimit,
  signal?: AbortSignal,
): Promise<Page<Host>> {
  const query = { ...filter, after: after ?? undefined, limit };
  const page = await data(api.GET("/api/v1/hosts", { params: { query }, signal }));
  return { rows: page.hosts, next: page.next ?? null };
}

/** By address, `CLOUD:IP` or agent id. */
export const hostQuery = (host: string) =>
  queryOptions({
    queryKey: ["hosts", "one", host],
    queryFn: ({ signal }) => data(api.GET("/api/v1/hosts/{host}", { params: { path: { host } }, signal })),
    refetchInterval: 10_000,
  });

const HOSTS_MAX = 30_000;

/** Every host that the caller may read: for pickers and counts in the administration. */
export const allHostsQuery = queryOptions({
  queryKey: ["hosts", "all"],
  queryFn: ({ signal }) => fetchAll((after) => fetchHosts({}, after, 1000, signal), HOSTS_MAX),
  staleTime: 10_000,
  refetchInterval: 15_000,
});

export const businessesQuery = queryOptions({
  queryKey: ["businesses"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/businesses", { signal }))).businesses,
  staleTime: 60_000,
});

export const businessSetsQuery = queryOptions({
  queryKey: ["business-sets"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/business-sets", { signal }))).business_sets,
  staleTime: 60_000,
});

/** Maintenance: no starts from the fleet, no alarms; without seconds until somebody ends it. */
export function cordonHost(host: string, reason: string, ttl_secs: number | null) {
  const params = { path: { host } };
  return data(api.PUT("/api/v1/hosts/{host}/cordon", { params, body: { reason, ttl_secs } }));
}

export function uncordonHost(host: string) {
  return data(api.DELETE("/api/v1/hosts/{host}/cordon", { params: { path: { host } } }));
}

/** Lets a new host in. */
export function approveHost(host: string) {
  return data(api.POST("/api/v1/hosts/{host}/approve", { params: { path: { host } } }));
}

export function placeHosts(hosts: string[], business: number | null) {
  return data(api.PUT("/api/v1/hosts/placements", { body: { hosts, business } }));
}

export function removeHost(host: string) {
  return data(api.DELETE("/api/v1/hosts/{host}", { params: { path: { host } } }));
}

export function revokeHost(host: string) {
  return data(api.DELETE("/api/v1/hosts/{host}/certificate", { params: { path: { host } } }));
}

export function allowRejoin(host: string, ttl_secs: number) {
  return data(api.POST("/api/v1/hosts/{host}/rejoin", { params: { path: { host } }, body: { ttl_secs } }));
}

export function withdrawRejoin(host: string) {
  return data(api.DELETE("/api/v1/hosts/{host}/rejoin", { params: { path: { host } } }));
}

import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { type Page, pageLimit } from "./paged";

export type Host = Schemas["HostView"];
export type HostStatus = Schemas["HostStatus"];
export type HostTrouble = Schemas["HostTrouble"];
/** In the order of lists; the overview counts the same. */
export const hostStates = [
  "online",
  "away",
  "unreachable",
  "cordoned",
  "awaits_approval",
  "revoked",
] as const satisfies readonly HostStatus[];
export const hostTroubles = [
  "certificate_ends",
  "clock_off",
  "agent_outdated",
] as const satisfies readonly HostTrouble[];

/** The version of agents that have never connected, in addresses of the console. */
export const NEVER_CONNECTED = "unknown";

export type HostFilter = {
  business?: number;
  cloud?: number;
  state?: HostStatus;
  trouble?: HostTrouble;
  version?: string;
  token?: string;
  q?: string;
};

export async function fetchHosts(
  filter: HostFilter,
  after: string | null,
  limit = pageLimit(after),
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

const JOINED_MAX = 100;

/** The hosts that enrolled with a join token. */
export const joinedQuery = (token: string) =>
  queryOptions({
    queryKey: ["hosts", "joined", token],
    queryFn: async ({ signal }) => (await fetchHosts({ token }, null, JOINED_MAX, signal)).rows,
    refetchInterval: 3000,
  });

/** New hosts that an administrator has to let in. */
export const awaitingQuery = queryOptions({
  queryKey: ["hosts", "awaiting"],
  queryFn: async ({ signal }) =>
    (await fetchHosts({ state: "awaits_approval" }, null, JOINED_MAX, signal)).rows,
  refetchInterval: 10_000,
});

/** What new hosts can download from the server, and the port of its link. */
export const downloadsQuery = queryOptions({
  queryKey: ["downloads"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/downloads", { signal })),
  staleTime: 60_000,
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

/** Lets a new host in, if it still has the key that was shown. */
export function approveHost(host: string, key: string | undefined) {
  return data(api.POST("/api/v1/hosts/{host}/approve", { params: { path: { host } }, body: { key } }));
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

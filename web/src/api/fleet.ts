import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { type Page, pageLimit } from "./paged";

export type Relay = Schemas["RelayView"];
export type Build = Schemas["BuildView"];
export type Upgrade = Schemas["UpgradeView"];
export type UpgradeHost = Schemas["UpgradeHostView"];
export type UpgradeState = Schemas["UpgradeState"];
export type UpgradeHostState = Schemas["UpgradeHostState"];
export type UpgradeRingProgress = Schemas["UpgradeRingProgress"];
export type UpgradePlan = Schemas["UpgradePlanView"];
export type NewUpgrade = Schemas["NewUpgrade"];
export type Authority = Schemas["AuthorityView"];
export type UnservedHost = Schemas["UnservedHostView"];

const RELAYS_MS = 10_000;
/** While an upgrade or a rotation goes on, and while nothing does. */
const WATCH_MS = 3000;
const IDLE_MS = 30_000;

export const relaysQuery = queryOptions({
  queryKey: ["relays"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/relays", { signal }))).relays,
  refetchInterval: RELAYS_MS,
});

export const revokeRelay = (relay: string) =>
  data(api.DELETE("/api/v1/relays/{relay}", { params: { path: { relay } } }));

export const buildsQuery = queryOptions({
  queryKey: ["builds"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/builds", { signal }))).builds,
});

export const isUnderWay = (upgrade: Pick<Upgrade, "state">) =>
  upgrade.state === "running" || upgrade.state === "paused";

export const upgradesQuery = queryOptions({
  queryKey: ["upgrades"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/upgrades", { signal }))).upgrades,
  refetchInterval: (query) => (query.state.data?.some(isUnderWay) ? WATCH_MS : IDLE_MS),
});

function fetchUpgrade(
  id: string,
  query: { state?: UpgradeHostState; after?: number; limit: number },
  signal?: AbortSignal,
) {
  return data(api.GET("/api/v1/upgrades/{id}", { params: { path: { id }, query }, signal }));
}

/** One upgrade and how far each of its rings is; also hosts of one that has ended may be at it still. */
export const upgradeQuery = (id: string) =>
  queryOptions({
    queryKey: ["upgrades", id],
    queryFn: ({ signal }) => fetchUpgrade(id, { limit: 1 }, signal),
    refetchInterval: ({ state: { data: held } }) => {
      const isBusy = held && (isUnderWay(held) || held.progress?.some((ring) => ring.upgrading > 0));
      return !held || isBusy ? WATCH_MS : false;
    },
  });

/** The hosts of an upgrade, in the order in which their turn comes. */
export async function fetchUpgradeHosts(
  id: string,
  state: UpgradeHostState | undefined,
  after: string | null,
  limit = pageLimit(after),
  signal?: AbortSignal,
): Promise<Page<UpgradeHost>> {
  const query = { state, after: after === null ? undefined : Number(after), limit };
  const page = await fetchUpgrade(id, query, signal);
  return { rows: page.hosts, next: page.next == null ? null : String(page.next) };
}

export const planUpgrade = (body: NewUpgrade, signal?: AbortSignal) =>
  data(api.POST("/api/v1/upgrades/plan", { body, signal }));
export const startUpgrade = (body: NewUpgrade) => data(api.POST("/api/v1/upgrades", { body }));
export const pauseUpgrade = (id: string) =>
  data(api.POST("/api/v1/upgrades/{id}/pause", { params: { path: { id } } }));
export const resumeUpgrade = (id: string) =>
  data(api.POST("/api/v1/upgrades/{id}/resume", { params: { path: { id } } }));
export const cancelUpgrade = (id: string) =>
  data(api.POST("/api/v1/upgrades/{id}/cancel", { params: { path: { id } } }));

export const authorityQuery = queryOptions({
  queryKey: ["authority"],
  queryFn: ({ signal }) => data(api.GET("/api/v1/authority", { signal })),
  refetchInterval: (query) => (query.state.data?.phase === "idle" ? IDLE_MS : WATCH_MS),
});

export const rotationSteps = ["prepare", "switch", "finish", "abort"] as const;
export type RotationStep = (typeof rotationSteps)[number];

/** Without `force` the server refuses a step that cuts somebody off. */
export function rotateAuthority(step: RotationStep, force: boolean) {
  const body = { force };
  switch (step) {
    case "prepare":
      return data(api.POST("/api/v1/authority/prepare", { body }));
    case "switch":
      return data(api.POST("/api/v1/authority/switch", { body }));
    case "finish":
      return data(api.POST("/api/v1/authority/finish", { body }));
    case "abort":
      return data(api.POST("/api/v1/authority/abort", { body }));
  }
}

/** Hosts whose agents have left them for others. */
export const unservedQuery = queryOptions({
  queryKey: ["hosts", "unserved"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/hosts/unserved", { signal }))).hosts,
  refetchInterval: IDLE_MS,
});

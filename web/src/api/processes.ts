import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { type Concerns, fetchAll, type Page, pageLimit } from "./paged";

export type Process = Schemas["ProcessView"];
export type Phase = Schemas["Phase"];
export type Spec = Schemas["Spec"];
export type Registration = Schemas["Registration"];
export type Lifetime = Schemas["Lifetime"];
export type ProcessSort = Schemas["ProcessSort"];

export const phases: readonly Phase[] = [
  "failed",
  "unknown",
  "starting",
  "stopping",
  "waiting",
  "running",
  "stopped",
];

export const lifetimes: readonly Lifetime[] = ["resident", "periodic", "once"];

export type Trouble = Schemas["Trouble"];
export const troubles: readonly Trouble[] = ["crash_looping", "evicted"];

export type ProcessFilter = {
  namespace?: string;
  name?: string;
  host?: string;
  business?: number;
  selector?: string;
  phase?: string;
  q?: string;
  lifetime?: Lifetime;
  trouble?: Trouble;
  cordoned?: boolean;
  sort?: ProcessSort;
  full?: boolean;
  /** Also count what matches; the sums over the fleet (`facetsQuery`) cost less where much does. */
  count?: boolean;
};

/** Its own events change an instance, and those of its host's agent. */
export const concernsProcess: Concerns<Process> = (row, event) =>
  event.host === row.host && (event.process === row.process || event.type.startsWith("agent_"));

/** The parts of `NAMESPACE/NAME`; a slash within a namespace is written `%2F`, and `%` is `%25`. */
export function splitProcess(process: string): { namespace: string; name: string } {
  const slash = process.indexOf("/");
  const namespace = process.slice(0, slash).replaceAll("%2F", "/").replaceAll("%25", "%");
  return { namespace, name: process.slice(slash + 1) };
}

export function joinProcess(namespace: string, name: string): string {
  return `${namespace.replaceAll("%", "%25").replaceAll("/", "%2F")}/${name}`;
}

export async function fetchProcesses(
  filter: ProcessFilter,
  after: string | null,
  limit = pageLimit(after),
  signal?: AbortSignal,
): Promise<Page<Process>> {
  const query = {
    ...filter,
    after: after ?? undefined,
    limit,
    count: (filter.count && after === null) || undefined,
  };
  const page = await data(api.GET("/api/v1/processes", { params: { query }, signal }));
  return { rows: page.processes, next: page.next ?? null, total: page.total ?? undefined };
}

export type ProcessGroup = Schemas["ProcessGroup"];
export type GroupSort = Schemas["GroupSort"];
export type Facets = Schemas["Facets"];

/** Each process once, with sums over its hosts. */
export async function fetchGroups(
  { sort: _, full: __, count: ___, ...filter }: ProcessFilter,
  sort: GroupSort,
  after: string | null,
  signal?: AbortSignal,
): Promise<Page<ProcessGroup>> {
  const query = { ...filter, sort, after: after ?? undefined, limit: pageLimit(after) };
  const page = await data(api.GET("/api/v1/processes/groups", { params: { query }, signal }));
  return { rows: page.groups, next: page.next ?? null, total: page.total };
}

/** How many processes match, and what each filter could be set to: counted with all other filters, but without itself. */
export const facetsQuery = ({ sort: _, full: __, count: ___, ...filter }: ProcessFilter) =>
  queryOptions({
    queryKey: ["facets", filter],
    queryFn: ({ signal }) => {
      const query = { ...filter, each_without: true };
      return data(api.GET("/api/v1/processes/facets", { params: { query }, signal }));
    },
    staleTime: 5000,
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });

export const INSTANCES_MAX = 20_000;
const MS_PER_INSTANCE = 10;
const INSTANCES_PACE_MAX_MS = 60_000;

/** The least time between two questions for so many instances: many cost more, and something always happens to one. */
export const instancesPaceMs = (count: number) => Math.min(count * MS_PER_INSTANCE, INSTANCES_PACE_MAX_MS);

/** The key of `processQuery`: below that of the process, and apart from what its hosts are asked for. */
export const instancesKey = (namespace: string, name: string) => ["process", namespace, name, "instances"];

/** A process on all its hosts, with spec and snapshot. */
export const processQuery = (namespace: string, name: string) =>
  queryOptions({
    queryKey: instancesKey(namespace, name),
    queryFn: async ({ signal }) => {
      const filter = { namespace, name, full: true };
      const { rows } = await fetchAll((after) => fetchProcesses(filter, after, 1000, signal), INSTANCES_MAX);
      return rows;
    },
    refetchInterval: (query) => Math.max(5000, instancesPaceMs(query.state.data?.length ?? 0)),
    staleTime: 2000,
  });

export const historyQuery = (namespace: string, name: string, host: string) =>
  queryOptions({
    queryKey: ["process", namespace, name, "history", host],
    queryFn: ({ signal }) =>
      data(
        api.GET("/api/v1/processes/{namespace}/{name}/history", {
          params: { path: { namespace, name }, query: { host } },
          signal,
        }),
      ),
    staleTime: 10_000,
  });

export type Usage = Schemas["UsageView"];
export type UsageRange = Schemas["UsageSpan"];

/** What a process used on a host, as the host has recorded it. */
export const usageQuery = (
  namespace: string,
  name: string,
  host: string,
  range: UsageRange,
  instance?: number,
) =>
  queryOptions({
    queryKey: ["process", namespace, name, "usage", host, range, instance],
    queryFn: ({ signal }) =>
      data(
        api.GET("/api/v1/processes/{namespace}/{name}/usage", {
          params: { path: { namespace, name }, query: { host, range, instance } },
          signal,
        }),
      ),
    enabled: host !== "",
    staleTime: 5000,
    refetchInterval: range === "1h" ? 10_000 : 60_000,
  });

export type LogAnswer = Schemas["LogView"];
export type LogPlace = {
  namespace: string;
  name: string;
  host: string;
  lines: number;
  instance?: number;
};

/** A log as far as it has been read: the text of all answers, and what the last one said. */
export type ReadLog = {
  text: string;
  path: string;
  size: number;
  modifiedAt?: number;
  /** Why the text is not all that was written. */
  gap?: "restarted" | "skipped";
  position?: string;
  answer: LogAnswer;
};

/** More is not kept: the oldest lines go. */
const LOG_CHARS_MAX = 512 * 1024;

/** What a log is after one more answer. */
export function addToLog(before: ReadLog | undefined, answer: LogAnswer): ReadLog {
  if (answer.state !== "read") {
    const { text = "", path = answer.path, size = answer.size, modifiedAt, gap, position } = before ?? {};
    return { text, path, size, modifiedAt, gap, position, answer };
  }
  const isOn = before?.position !== undefined && !answer.restarted && answer.skipped === 0;
  const text = (isOn ? before.text : "") + answer.text;
  const surplus = Math.max(text.length - LOG_CHARS_MAX, 0);
  // At the start of a line, where one starts.
  const line = text.indexOf("\n", surplus) + 1;
  const cut = surplus > 0 && line > 0 && line < text.length ? line : surplus;
  const gap = answer.restarted ? "restarted" : answer.skipped > 0 ? "skipped" : isOn ? before.gap : undefined;
  return {
    text: text.slice(cut),
    path: answer.path,
    size: answer.size,
    modifiedAt: answer.modified_at ?? undefined,
    gap,
    position: answer.position ?? undefined,
    answer,
  };
}

/** The end of a process's log on a host; once it is there, only what was written since is asked for. */
export const logQuery = (client: QueryClient, place: LogPlace, isFollowed: boolean) => {
  const { namespace, name, host, lines, instance } = place;
  const queryKey = ["process", namespace, name, "log", host, lines, instance];
  return queryOptions({
    queryKey,
    queryFn: async ({ signal }) => {
      const before = client.getQueryData<ReadLog>(queryKey);
      const answer = await data(
        api.GET("/api/v1/processes/{namespace}/{name}/log", {
          params: { path: { namespace, name }, query: { host, lines, instance, since: before?.position } },
          signal,
        }),
      );
      return addToLog(before, answer);
    },
    enabled: host !== "",
    staleTime: 1000,
    // What it holds may be secret: it goes with the page.
    gcTime: 0,
    refetchInterval: isFollowed ? 2000 : false,
  });
};

export function register(registration: Registration, update: boolean) {
  return data(api.POST("/api/v1/processes", { params: { query: { update } }, body: registration }));
}

export function planRegistration(registration: Registration, signal?: AbortSignal) {
  return data(api.POST("/api/v1/processes/plan", { body: registration, signal }));
}

export type PlannedUnregistration = Schemas["PlannedUnregistration"];

/** What unregistering would do on each of the hosts. */
export function planUnregistration(process: string, hosts: string[], signal?: AbortSignal) {
  const params = { path: splitProcess(process) };
  return data(
    api.POST("/api/v1/processes/{namespace}/{name}/unregister/plan", { params, body: { hosts }, signal }),
  );
}

export function unregister(process: string, hosts: string[]) {
  const path = splitProcess(process);
  return data(api.DELETE("/api/v1/processes/{namespace}/{name}", { params: { path }, body: { hosts } }));
}

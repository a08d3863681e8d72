import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import type { Page } from "./paged";

export type Event = Schemas["EventView"];
export type EventKind = Schemas["EventKind"];

export const eventKinds: readonly EventKind[] = [
  "restart_succeeded",
  "restart_failed",
  "cancel_restart",
  "limit_exceeded",
  "pool_limit_exceeded",
  "started",
  "exited",
  "adopted",
  "pid_changed",
  "health_changed",
  "config_changed",
  "schedule_skipped",
  "fd_warning",
  "pool_warning",
  "agent_online",
  "agent_offline",
  "events_dropped",
  "local_operation",
  "command_refused",
  "agent_upgraded",
  "agent_upgrade_failed",
  "agent_cloned",
  "clock_off",
];

/** What is said where somebody is, or would be, ended for what it uses. */
export const evictionKinds: readonly string[] = ["limit_exceeded", "pool_limit_exceeded", "pool_warning"];

export type EventFilter = {
  after?: number;
  before?: number;
  namespace?: string;
  name?: string;
  host?: string;
  type?: string;
  /** Stored from this moment on, and before that one. */
  since_ms?: number;
  until_ms?: number;
  limit?: number;
};

export async function fetchEvents(filter: EventFilter, signal?: AbortSignal): Promise<Event[]> {
  return (await data(api.GET("/api/v1/events", { params: { query: filter }, signal }))).events;
}

const NEWEST = Number.MAX_SAFE_INTEGER;

/** A page of the events that match, newest first. */
export async function fetchEventPage(filter: EventFilter, after: string | null): Promise<Page<Event>> {
  const query = { ...filter, before: after === null ? NEWEST : Number(after), limit: 1000 };
  const page = await data(api.GET("/api/v1/events", { params: { query } }));
  return { rows: page.events, next: page.next === 0 ? null : String(page.next) };
}

export type Histogram = Schemas["EventHistogram"];
export type EventSpan = { secs: number; step: number };

/** How many events of which type there were, step by step, up to now. */
export const histogramQuery = ({ namespace, name, host, type }: EventFilter, { secs, step }: EventSpan) =>
  queryOptions({
    queryKey: ["events", "histogram", { namespace, name, host, type }, secs],
    queryFn: ({ signal }) => {
      const until = Math.ceil(Date.now() / 1000 / step) * step;
      const query = { namespace, name, host, type, since: until - secs, until, step };
      return data(api.GET("/api/v1/events/histogram", { params: { query }, signal }));
    },
    refetchInterval: 15_000,
    staleTime: 10_000,
    placeholderData: keepPreviousData,
  });

/** One event, by its number. */
export const eventQuery = (id: number) =>
  queryOptions({
    queryKey: ["event", id],
    queryFn: async ({ signal }) => {
      const [event] = await fetchEvents({ before: id + 1, limit: 1 }, signal);
      return event?.id === id ? event : null;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });

/** The newest events that match, newest first. */
export const eventsQuery = (filter: EventFilter) =>
  queryOptions({
    queryKey: ["events", filter],
    queryFn: async ({ signal }) => (await fetchEvents(filter, signal)).reverse(),
    staleTime: 5000,
    // The stream brings what comes; after a gap in it the list is read again, see live-cache.ts.
    refetchOnWindowFocus: false,
  });

/** The newest evictions that match, and warnings of pools, newest first; asked for anew when one happens. */
export const evictionsQuery = (filter: EventFilter) =>
  queryOptions({
    queryKey: ["evictions", filter],
    queryFn: async ({ signal }) => (await fetchEvents({ ...filter, limit: 500 }, signal)).reverse(),
    staleTime: 5000,
  });

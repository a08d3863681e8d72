import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";

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
];

export type EventFilter = {
  after?: number;
  before?: number;
  namespace?: string;
  name?: string;
  host?: string;
  type?: string;
  limit?: number;
};

export async function fetchEvents(filter: EventFilter, signal?: AbortSignal): Promise<Event[]> {
  return (await data(api.GET("/api/v1/events", { params: { query: filter }, signal }))).events;
}

/** The newest events that match, newest first. */
export const eventsQuery = (filter: EventFilter) =>
  queryOptions({
    queryKey: ["events", filter],
    queryFn: async ({ signal }) => (await fetchEvents(filter, signal)).reverse(),
    staleTime: 5000,
  });

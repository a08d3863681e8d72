import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Event, fetchEvents } from "@/api/events";
import { allHostsQuery } from "@/api/hosts";
import { fetchProcesses, type Process } from "@/api/processes";

const TYPES =
  "restart_succeeded,restart_failed,cancel_restart,limit_exceeded,pool_limit_exceeded,agent_offline";

/** Restarts in a row from which on a process counts as crash-looping. */
export const LOOP_RESTARTS = 3;

const ill = (name: string, filter: Parameters<typeof fetchProcesses>[0], limit = 1000) => ({
  queryKey: ["attention", name],
  queryFn: ({ signal }: { signal: AbortSignal }) => fetchProcesses(filter, null, limit, signal),
  refetchInterval: 10_000,
});

export const troubleEventsQuery = {
  queryKey: ["attention", "events"],
  queryFn: ({ signal }: { signal: AbortSignal }) => fetchEvents({ type: TYPES, limit: 1000 }, signal),
  refetchInterval: 30_000,
};

export type Overview = {
  hosts: NonNullable<ReturnType<typeof useHosts>["data"]>["rows"];
  failed: Process[];
  waiting: Process[];
  looping: Process[];
  events: Event[];
  /** A full page means that there may be more. */
  isMore: boolean;
};

function useHosts() {
  return useQuery(allHostsQuery);
}

/** Everything that the overview shows, from the lists that the API has. */
export function useOverview() {
  const hosts = useHosts();
  const failed = useQuery(ill("failed", { phase: "failed" }));
  const waiting = useQuery(ill("waiting", { phase: "waiting" }));
  const restarted = useQuery(ill("restarted", { sort: "restarts" }, 200));
  const events = useQuery(troubleEventsQuery);
  const all = [hosts, failed, waiting, restarted, events];
  const data = useMemo((): Overview | null => {
    if (!hosts.data || !failed.data || !waiting.data || !restarted.data || !events.data) return null;
    return {
      hosts: hosts.data.rows,
      failed: failed.data.rows,
      waiting: waiting.data.rows,
      looping: restarted.data.rows.filter((row) => row.restarts >= LOOP_RESTARTS && row.phase !== "failed"),
      events: events.data,
      isMore: failed.data.next !== null || waiting.data.next !== null,
    };
  }, [hosts.data, failed.data, waiting.data, restarted.data, events.data]);
  const retry = () => {
    for (const query of all) void query.refetch();
  };
  const updatedAt = Math.min(...all.slice(0, 4).map((query) => query.dataUpdatedAt));
  return { data, updatedAt, error: all.find((query) => query.error)?.error ?? null, retry };
}

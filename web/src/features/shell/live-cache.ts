import { type Query, type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { type Event, evictionKinds } from "@/api/events";
import { isTrouble } from "@/api/overview";
import { instancesKey, instancesPaceMs, splitProcess } from "@/api/processes";
import { eventStream } from "@/api/stream";

type Key = readonly string[];

/** How long what an event concerns waits for further events before it is asked for anew. */
const SETTLE_MS = 400;
/** Sums over the whole fleet cost more, and something always happens in a large one. */
const SLOWER_MS: Record<string, number> = {
  overview: 2000,
  "overview-map": 10_000,
  trouble: 10_000,
  facets: 5000,
};
/** What events concern at all: asked for anew when some of them were missed. */
const LIVE_KEYS: Key[] = [
  ["overview"],
  ["overview-map"],
  ["process"],
  ["facets"],
  ["trouble"],
  ["evictions"],
  ["hosts"],
  ["events"],
];

/** What an event names: the process on its hosts, the hosts, the sums over all of them. */
export function keysOf(event: Event): Key[] {
  const keys: Key[] = [["overview"], ["overview-map"]];
  if (event.process) {
    const { namespace, name } = splitProcess(event.process);
    keys.push(instancesKey(namespace, name), ["facets"]);
  }
  if (isTrouble(event.type)) keys.push(["trouble"]);
  if (evictionKinds.includes(event.type)) keys.push(["evictions"]);
  if (event.type.startsWith("agent_")) keys.push(["hosts"]);
  return keys;
}

/** How long a key waits after its first event. */
function paceOf(client: QueryClient, key: Key): number {
  const kind = key[0] ?? "";
  const slower = SLOWER_MS[kind];
  if (slower !== undefined || kind !== "process") return slower ?? SETTLE_MS;
  const held = client.getQueryData<unknown[]>(key)?.length ?? 0;
  return Math.max(SETTLE_MS, instancesPaceMs(held));
}

/** Marks queries as out of date, each kind at its own pace. */
export class Marker {
  private readonly dirty = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(private readonly client: QueryClient) {}

  mark(key: Key) {
    const name = key.join("\n");
    if (this.dirty.has(name)) return;
    const refresh = () => {
      this.dirty.delete(name);
      // Long lists refresh what is on the screen by themselves, see usePaged.
      const predicate = (query: Query) => !query.meta?.isPaged;
      void this.client.invalidateQueries({ queryKey: key, refetchType: "active", predicate });
    };
    this.dirty.set(name, setTimeout(refresh, paceOf(this.client, key)));
  }

  stop() {
    for (const timer of this.dirty.values()) clearTimeout(timer);
    this.dirty.clear();
  }
}

/** What an event names is asked for anew. */
export function useLiveCache() {
  const client = useQueryClient();
  useEffect(() => {
    const marker = new Marker(client);
    const unlisten = eventStream.listen((events) => {
      for (const event of events) for (const key of keysOf(event)) marker.mark(key);
    });
    const unlistenGaps = eventStream.listenForGaps((isFirst) => {
      // What a page asked for at first may have been answered just before the stream began.
      for (const key of isFirst ? [["events"]] : LIVE_KEYS) marker.mark(key);
    });
    eventStream.start();
    return () => {
      unlisten();
      unlistenGaps();
      marker.stop();
      eventStream.stop();
    };
  }, [client]);
}

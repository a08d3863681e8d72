import { QueryClient } from "@tanstack/react-query";
import { afterEach, expect, test, vi } from "vitest";
import type { Event } from "@/api/events";
import { historyQuery, instancesKey, processQuery, usageQuery } from "@/api/processes";
import { keysOf, Marker } from "./live-cache";

afterEach(() => void vi.useRealTimers());

const event = (more: Partial<Event>) => ({ type: "exited", host: "0:10.0.0.1", ...more }) as Event;

test("an event of a process concerns its page and the sums", () => {
  expect(keysOf(event({ process: "a%2Fb/c" }))).toEqual([
    ["overview"],
    ["overview-map"],
    instancesKey("a/b", "c"),
    ["facets"],
  ]);
});

test("an agent that comes or goes concerns the hosts", () => {
  expect(keysOf(event({ type: "agent_offline" }))).toContainEqual(["hosts"]);
});

test("what happens to a process does not ask its hosts anew", () => {
  const client = new QueryClient();
  const stale = (key: readonly unknown[]) => client.getQueryState(key)?.isInvalidated;
  const usage = usageQuery("web", "nginx", "0:10.0.0.1", "1h").queryKey;
  const history = historyQuery("web", "nginx", "0:10.0.0.1").queryKey;
  const instances = processQuery("web", "nginx").queryKey;
  for (const key of [usage, history, instances]) client.setQueryData<unknown>(key, []);
  vi.useFakeTimers();
  const marker = new Marker(client);

  for (const key of keysOf(event({ process: "web/nginx" }))) marker.mark(key);
  vi.advanceTimersByTime(1000);

  expect([usage, history, instances].map(stale)).toEqual([false, false, true]);
  marker.stop();
});

test("a process on many hosts is asked for seldom", () => {
  const client = new QueryClient();
  const key = processQuery("web", "nginx").queryKey;
  client.setQueryData<unknown>(key, new Array(3000).fill({}));
  vi.useFakeTimers();
  const marker = new Marker(client);

  marker.mark(instancesKey("web", "nginx"));
  vi.advanceTimersByTime(29_000);
  const isEarly = client.getQueryState(key)?.isInvalidated;
  vi.advanceTimersByTime(2000);

  expect([isEarly, client.getQueryState(key)?.isInvalidated]).toEqual([false, true]);
  marker.stop();
});

test("trouble over time is counted anew only where the event is trouble", () => {
  expect(keysOf(event({ type: "exited" }))).not.toContainEqual(["trouble"]);
  expect(keysOf(event({ type: "restart_failed" }))).toContainEqual(["trouble"]);
});

test("an eviction is asked for anew by who shows evictions, and long lists are left to themselves", async () => {
  const client = new QueryClient();
  const paged = { queryKey: ["hosts", "list"], meta: { isPaged: true } };
  await client.prefetchQuery({ ...paged, queryFn: () => [] });
  await client.prefetchQuery({ queryKey: ["hosts", "one"], queryFn: () => [] });
  vi.useFakeTimers();
  const marker = new Marker(client);

  for (const key of keysOf(event({ type: "agent_offline" }))) marker.mark(key);
  vi.advanceTimersByTime(1000);

  expect(keysOf(event({ type: "pool_limit_exceeded", process: "web/a" }))).toContainEqual(["evictions"]);
  expect(client.getQueryState(["hosts", "list"])?.isInvalidated).toBe(false);
  expect(client.getQueryState(["hosts", "one"])?.isInvalidated).toBe(true);
  marker.stop();
});

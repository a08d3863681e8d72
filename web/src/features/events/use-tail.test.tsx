import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, expect, test, vi } from "vitest";
import type { Event } from "@/api/events";
import { eventStream } from "@/api/stream";
import { fakeApi } from "../../../test/fake-api";
import { joinEvents, useTail } from "./use-tail";

afterEach(() => void vi.restoreAllMocks());

const event = (id: number) =>
  ({ id, type: "exited", host: "0:10.0.0.1", process: "web/nginx", at_ms: id, stored_at_ms: id }) as Event;
const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => event(from + at));
const ids = (events: Event[]) => events.map((each) => each.id);
const down = (from: number, to: number) => ids(range(to, from)).reverse();

/** A server with events 1 to `last`, which grows, and the stream that tells of them. */
function world(last: number) {
  const server = { last };
  fakeApi({
    "GET /api/v1/events": (_, url) => {
      const before = Number(url.searchParams.get("before") ?? server.last + 1);
      const limit = Number(url.searchParams.get("limit"));
      const page = range(Math.max(1, before - limit), Math.min(server.last, before - 1));
      // The newest come with the oldest of them first, earlier ones with the newest first.
      return { body: { events: url.searchParams.has("before") ? page.reverse() : page, next: 0 } };
    },
  });
  const listeners = new Set<(events: Event[]) => void>();
  vi.spyOn(eventStream, "listen").mockImplementation((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const view = renderHook(({ isPaused }) => useTail({ namespace: "web" }, isPaused), {
    wrapper,
    initialProps: { isPaused: false },
  });
  return {
    client,
    view,
    shown: () => ids(view.result.current.events),
    /** Events that are stored, and told to who listens. */
    happen: (to: number, isTold = true) => {
      const fresh = range(server.last + 1, to);
      server.last = to;
      if (isTold) for (const listener of listeners) listener(fresh);
    },
    older: () => act(() => view.result.current.fetchOlder?.() ?? Promise.resolve()),
    refetch: () => act(() => client.invalidateQueries({ queryKey: ["events"] })),
  };
}

test("older pages and fresh events stay joined when the newest are read again", async () => {
  const { view, shown, happen, older, refetch } = world(1500);
  await waitFor(() => expect(view.result.current.events).toHaveLength(500));
  await older();

  happen(1700, false);
  await refetch();

  await waitFor(() => expect(shown()[0]).toBe(1700));
  expect(shown()).toEqual(down(1700, 501));
});

test("after so many that they do not join, the list begins anew and goes on to older ones", async () => {
  const { view, shown, happen, older, refetch } = world(1500);
  await waitFor(() => expect(view.result.current.events).toHaveLength(500));
  await older();

  happen(3000, false);
  await refetch();
  await waitFor(() => expect(shown()).toEqual(down(3000, 2501)));
  await older();

  expect(shown()).toEqual(down(3000, 2001));
});

test("events of the stream come on top, each once", async () => {
  const { view, shown, happen, refetch } = world(3);
  await waitFor(() => expect(view.result.current.events).toHaveLength(3));

  happen(5);
  await waitFor(() => expect(shown()).toEqual([5, 4, 3, 2, 1]));
  await refetch();

  await waitFor(() => expect(view.result.current.isLoading).toBe(false));
  expect(shown()).toEqual([5, 4, 3, 2, 1]);
});

test("while paused nothing moves, and what came is counted; then all of it is there", async () => {
  const { view, shown, happen, refetch } = world(3);
  await waitFor(() => expect(view.result.current.events).toHaveLength(3));
  view.rerender({ isPaused: true });

  happen(5);
  await waitFor(() => expect(view.result.current.waiting).toBe(2));
  await refetch();
  expect(shown()).toEqual([3, 2, 1]);
  view.rerender({ isPaused: false });

  await waitFor(() => expect(shown()).toEqual([5, 4, 3, 2, 1]));
  expect(view.result.current.waiting).toBe(0);
});

test("lists join without a hole, or the older one is left out", () => {
  expect(ids(joinEvents(range(4, 6).reverse(), range(1, 4).reverse(), true))).toEqual([6, 5, 4, 3, 2, 1]);
  expect(ids(joinEvents(range(5, 6).reverse(), range(1, 3).reverse(), true))).toEqual([6, 5]);
  expect(ids(joinEvents(range(5, 6).reverse(), range(1, 3).reverse(), false))).toEqual([6, 5, 3, 2, 1]);
});

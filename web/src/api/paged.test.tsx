import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, expect, test, vi } from "vitest";
import type { Event } from "./events";
import { usePaged } from "./paged";
import { concernsProcess, type Process } from "./processes";
import { eventStream } from "./stream";

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

const key = ["processes", "test"];

/** A list of three rows, of which the first two are on the screen. */
async function list() {
  let tell: (events: Event[]) => void = () => undefined;
  vi.spyOn(eventStream, "listen").mockImplementation((listener) => {
    tell = listener;
    return () => undefined;
  });
  const rows = ["a", "b", "c"].map((name) => ({ process: `web/${name}`, host: "0:10.0.0.1" }) as Process);
  const fetchPage = vi.fn(async () => ({ rows, next: null }));
  const client = new QueryClient();
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const view = renderHook(() => usePaged<Process>(key, fetchPage, 600_000, concernsProcess), { wrapper });
  await waitFor(() => expect(view.result.current.rows).toHaveLength(3));
  act(() => view.result.current.table.onVisible(0, 1));
  vi.useFakeTimers();
  fetchPage.mockClear();
  return { fetchPage, tell: (event: Partial<Event>) => tell([{ host: "0:10.0.0.1", ...event } as Event]) };
}

test("an event of a row on the screen asks for its page once, soon", async () => {
  const { fetchPage, tell } = await list();

  tell({ type: "exited", process: "web/a" });
  tell({ type: "started", process: "web/a" });
  await act(() => vi.advanceTimersByTimeAsync(1500));

  expect(fetchPage).toHaveBeenCalledTimes(1);
});

test("events of other rows ask for nothing", async () => {
  const { fetchPage, tell } = await list();

  tell({ type: "exited", process: "web/c" });
  tell({ type: "exited", process: "web/a", host: "0:10.0.0.2" });
  await act(() => vi.advanceTimersByTimeAsync(1500));

  expect(fetchPage).not.toHaveBeenCalled();
});

test("a host whose agent goes takes its rows along", async () => {
  const { fetchPage, tell } = await list();

  tell({ type: "agent_offline" });
  await act(() => vi.advanceTimersByTimeAsync(1500));

  expect(fetchPage).toHaveBeenCalledTimes(1);
});

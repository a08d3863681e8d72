import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./events-page";
import { barsOf } from "./histogram";
import { matches } from "./use-tail";

test("a bar stacks types that mean the same", () => {
  const series = { restart_failed: [1, 0], agent_offline: [2, 0], started: [0, 5] };

  const bars = barsOf({ from: 100, step: 60, series }, 2);

  expect(bars).toEqual([
    { from: 100, until: 160, total: 3, parts: [{ tone: "failed", count: 3 }] },
    { from: 160, until: 220, total: 5, parts: [{ tone: "running", count: 5 }] },
  ]);
});

test("an event outside of the chosen time is not part of the list", () => {
  const event = { process: "web/a", type: "started", host: "0:10.0.0.1", stored_at_ms: 5000 } as never;

  expect(matches({ since_ms: 5000, until_ms: 6000 }, event)).toBe(true);
  expect(matches({ since_ms: 5001 }, event)).toBe(false);
  expect(matches({ until_ms: 5000 }, event)).toBe(false);
});

test("a bar narrows the list to its step, and the address says so", async () => {
  const asked = fakeApi({
    "GET /api/v1/events": () => ({ body: { events: [], next: 0 } }),
    "GET /api/v1/events/histogram": (_, url) => {
      const series = { exited: Array.from({ length: 60 }, () => 1) };
      return { body: { from: Number(url.searchParams.get("since")), step: 60, series } };
    },
  });
  const { router } = renderPage(<Component />, { path: "/events?namespace=web" });

  const group = await screen.findByRole("group", { name: "Events over time" });
  await waitFor(() => expect(group.children).toHaveLength(60));
  await userEvent.click(group.children[10] as HTMLElement);

  const query = new URLSearchParams(router.state.location.search);
  const [since, until] = [Number(query.get("since")), Number(query.get("until"))];
  expect(until - since).toBe(60);
  await waitFor(() => {
    const wanted = asked.some((each) => each.url.searchParams.get("since_ms") === String(since * 1000));
    expect(wanted).toBe(true);
  });
  expect(screen.getByText("Past")).toBeTruthy();
});

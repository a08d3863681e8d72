import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { HostEvents } from "./event-table";

const event = (id: number) => ({
  id,
  type: "exited",
  host: "0:10.0.0.1",
  agent: "a",
  process: "web/nginx",
  content: `exit of life ${id}`,
  at_ms: id,
  stored_at_ms: id,
});

function server(ids: number[]) {
  return fakeApi({
    "GET /api/v1/events": (_, url) => {
      const before = Number(url.searchParams.get("before") ?? 0);
      // Events 1 to 9 are stored; the list has some of them.
      const found = before > 0 ? [before - 1].filter((id) => id < 10) : ids;
      return { body: { events: found.map(event), next: 0 } };
    },
  });
}

test("an open event is in the address", async () => {
  server([7, 8]);
  const { router } = renderPage(<HostEvents host="0:10.0.0.1" />, { path: "/hosts" });

  await userEvent.click(await screen.findByText("exit of life 8"));

  expect(router.state.location.search).toBe("?event=8");
  expect(await screen.findByText(/"id": 8/)).toBeTruthy();
});

test("an address opens an event that the list does not have", async () => {
  server([7, 8]);
  renderPage(<HostEvents host="0:10.0.0.1" />, { path: "/hosts?event=3" });

  expect(await screen.findByText(/"id": 3/)).toBeTruthy();
});

test("an address of an event that is gone says so", async () => {
  server([7, 8]);
  renderPage(<HostEvents host="0:10.0.0.1" />, { path: "/hosts?event=33" });

  expect(await screen.findByText("Not found")).toBeTruthy();
});

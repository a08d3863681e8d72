import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./audit-page";

const entry = (seq: number) => ({
  seq,
  at: 1_700_000_000_000,
  user: "ana",
  app: "",
  action: "operate",
  phase: "done",
  targets: ["web/a"],
  target_count: 1,
  outcome: "",
});

const verdict = { intact: true, entries: 3, last_hash: "abcdef0123456789" };

function server(answer: { status?: number; body: unknown }) {
  return fakeApi({
    "GET /api/v1/audit/verify": () => answer,
    "GET /api/v1/audit": (_, url) => {
      const before = Number(url.searchParams.get("before") ?? 4);
      const limit = Number(url.searchParams.get("limit"));
      const all = [3, 2, 1].filter((seq) => seq < before).slice(0, limit);
      return { body: { entries: all.map(entry), next: 0 } };
    },
  });
}

test("a broken chain says where it breaks", async () => {
  server({ body: { ...verdict, intact: false, broken_at: 2 } });
  renderPage(<Component />, { path: "/audit" });

  expect(await screen.findByText("The chain is broken at entry 2")).toBeTruthy();
});

test("a chain that could not be checked is not passed over in silence", async () => {
  server({ status: 500, body: { error: { code: "internal", message: "disk" } } });
  renderPage(<Component />, { path: "/audit" });

  expect(await screen.findByText("The chain could not be checked")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Check again" })).toBeTruthy();
});

test("an open entry is in the address, and an address opens it", async () => {
  server({ body: verdict });
  const { router } = renderPage(<Component />, { path: "/audit" });

  await userEvent.click((await screen.findAllByText("operate"))[0] as HTMLElement);
  expect(router.state.location.search).toBe("?entry=3");
  expect(await screen.findByText("Entry 3")).toBeTruthy();
});

test("an entry that the list does not have is looked up", async () => {
  const asked = server({ body: verdict });
  renderPage(<Component />, { path: "/audit?user=nobody&entry=1" });

  expect(await screen.findByText("Entry 1")).toBeTruthy();
  expect(asked.some((each) => each.url.searchParams.get("user") === "nobody")).toBe(true);
});

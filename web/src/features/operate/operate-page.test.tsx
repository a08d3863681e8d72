import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./operate-page";

function planOf(count: number) {
  const targets = Array.from({ length: count }, (_, index) => ({
    host: `0:10.0.0.${index}`,
    process: "web/nginx",
    operation: "restart",
  }));
  return { plan: { total: count, refused: 0, targets } };
}

function server(count: number) {
  return fakeApi({
    "GET /api/v1/hosts": () => ({ body: { hosts: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
    "GET /api/v1/processes": () => ({ body: { processes: [] } }),
    "POST /api/v1/operations": async (request) => {
      const { plan } = (await request.clone().json()) as { plan?: boolean };
      return plan ? { body: planOf(count) } : { status: 202, body: { task_id: "GSETASK:1" } };
    },
  });
}

const path = "/operate?op=restart&process=web/nginx";

test("the plan is there before anything runs, and the button says to how many", async () => {
  const asked = server(3);
  renderPage(<Component />, { path });

  const button = await screen.findByRole("button", { name: "Restart 3 processes" });
  expect(
    asked.filter((each) => each.method === "POST").every((each) => (each.body as { plan: boolean }).plan),
  ).toBe(true);

  await userEvent.click(button);

  const runs = asked.filter((each) => each.method === "POST" && !(each.body as { plan?: boolean }).plan);
  expect(runs).toHaveLength(1);
  expect(runs[0]?.headers.get("idempotency-key")).toBeTruthy();
});

test("an operation runs without HTTPS, where browsers make no UUIDs", async () => {
  const asked = server(1);
  vi.stubGlobal("crypto", { getRandomValues: (bytes: Uint8Array) => bytes.fill(7) });
  renderPage(<Component />, { path });

  await userEvent.click(await screen.findByRole("button", { name: "Restart 1 process" }));

  const run = asked.find((each) => each.method === "POST" && !(each.body as { plan?: boolean }).plan);
  expect(run?.headers.get("idempotency-key")).toBe("07".repeat(16));
});

test("above 50 targets the number has to be typed", async () => {
  server(51);
  renderPage(<Component />, { path });
  const button = await screen.findByRole<HTMLButtonElement>("button", { name: "Restart 51 processes" });
  expect(button.disabled).toBe(true);

  await userEvent.type(screen.getByLabelText("Type 51 to confirm"), "51");

  expect(button.disabled).toBe(false);
});

test("who may not operate sees the plan and why the button is off", async () => {
  server(2);
  renderPage(<Component />, { path, rights: { read: ["everything"] } });

  const button = await screen.findByRole<HTMLButtonElement>("button", { name: "Restart 2 processes" });
  expect(button.disabled).toBe(true);
  await userEvent.hover(button.parentElement as HTMLElement);
  expect(await screen.findByText(/Needs the right “Operate”/)).toBeTruthy();
});

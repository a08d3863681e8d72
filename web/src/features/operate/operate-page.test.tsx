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

function server(count: number, processes: object[] = []) {
  return fakeApi({
    "GET /api/v1/hosts": () => ({ body: { hosts: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
    "GET /api/v1/processes": () => ({ body: { processes } }),
    "POST /api/v1/operations": async (request) => {
      const { plan } = (await request.clone().json()) as { plan?: boolean };
      return plan ? { body: planOf(count) } : { status: 202, body: { task_id: "GSETASK:1" } };
    },
  });
}

const targetsOf = (asked: ReturnType<typeof server>) =>
  asked.filter((each) => each.method === "POST").map((each) => (each.body as { targets?: object[] }).targets);

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

test("cordoned, forbidden and away are told apart, and an address shows one of them", async () => {
  const target = (host: string, more: object) => ({
    host,
    process: "web/nginx",
    operation: "restart",
    ...more,
  });
  const targets = [
    target("0:10.0.0.1", { online: true }),
    target("0:10.0.0.2", { online: false }),
    target("0:10.0.0.3", { refused: { code: 128, name: "cordoned", message: "in maintenance" } }),
    target("0:10.0.0.4", { refused: { code: 403, name: "forbidden", message: "no right" } }),
  ];
  fakeApi({
    "POST /api/v1/operations": () => ({ body: { plan: { total: 4, refused: 2, targets } } }),
  });
  renderPage(<Component />, { path: `${path}&fate=cordoned` });

  expect(await screen.findByRole("button", { name: "Restart 2 processes" })).toBeTruthy();
  for (const sum of [
    "1 will run",
    "1 on hosts that are away",
    "1 on hosts in maintenance",
    "1 not allowed",
  ]) {
    expect(screen.getByText(sum)).toBeTruthy();
  }
  expect(screen.getByText("in maintenance")).toBeTruthy();
  expect(screen.queryByText("Not allowed: no right")).toBeNull();
});

test("all that match a filter are looked up again from the address", async () => {
  const asked = server(1, [{ process: "web/nginx", host: "0:10.0.0.7" }]);
  renderPage(<Component />, { path: "/operate?op=restart&match=namespace%3Dweb%26phase%3Dfailed" });

  await screen.findByRole("button", { name: "Restart 1 process" });

  const looked = asked.find((each) => each.url.pathname === "/api/v1/processes");
  expect(looked?.url.searchParams.get("phase")).toBe("failed");
  expect(targetsOf(asked)[0]).toEqual([{ process: "web/nginx", host: "0:10.0.0.7" }]);
});

test("rows that another tab has selected are missed aloud", async () => {
  server(1);
  renderPage(<Component />, { path: "/operate?op=restart&picked=lx3k" });

  expect(await screen.findByText(/selected in another tab/)).toBeTruthy();
  expect(screen.getByRole("link", { name: "Select them again" })).toBeTruthy();
});

test("a retry shows its plan, and above 50 the number is typed before it runs", async () => {
  const rows = Array.from({ length: 70 }, (_, index) => ({
    index,
    host: `0:10.0.0.${index}`,
    process: "web/nginx",
    operation: "restart",
    code: index < 60 ? 7 : 0,
    name: "",
    message: "",
  }));
  const planned = planOf(60);
  const away = { ...planned.plan.targets[0], online: false };
  planned.plan.targets[0] = away as never;
  const asked = fakeApi({
    "GET /api/v1/tasks/GSETASK%3A1/targets": () => ({ body: { targets: rows } }),
    "POST /api/v1/operations": () => ({ body: planned }),
    "POST /api/v1/tasks/GSETASK%3A1/retry": () => ({ status: 202, body: { task_id: "GSETASK:2" } }),
  });
  renderPage(<Component />, { path: "/operate?retry=GSETASK%3A1" });

  const retry = await screen.findByRole<HTMLButtonElement>("button", { name: "Retry 60 failed" });
  expect(retry.disabled).toBe(true);
  expect(screen.getByText("1 on hosts that are away")).toBeTruthy();
  expect(targetsOf(asked)[0]).toHaveLength(60);
  await userEvent.type(screen.getByLabelText("Type 60 to confirm"), "60");
  await userEvent.click(retry);

  expect(asked.at(-1)?.url.pathname).toBe("/api/v1/tasks/GSETASK%3A1/retry");
});

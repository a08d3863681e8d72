import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./processes-page";

const row = (name: string, more = {}) => ({
  process: `web/${name}`,
  host: "0:10.0.0.1",
  agent: "a",
  online: true,
  phase: "running",
  managed: true,
  pid: 7,
  cpu_percent: 1,
  memory_percent: 2,
  started_at: 1,
  restarts: 0,
  version: "",
  reason: "",
  lifetime: "resident",
  generation: 1,
  ...more,
});

function server(processes: object[]) {
  return fakeApi({
    "GET /api/v1/processes": () => ({ body: { processes } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [{ id: 3, name: "shop" }] } }),
  });
}

test("the filter of the address is asked for", async () => {
  const asked = server([row("nginx")]);
  renderPage(<Component />, { path: "/processes?namespace=web&phase=failed,unknown&sort=memory" });

  expect(await screen.findByText("web/nginx")).toBeTruthy();
  const query = asked.find((each) => each.url.pathname === "/api/v1/processes")?.url.searchParams;
  expect(query?.get("namespace")).toBe("web");
  expect(query?.get("phase")).toBe("failed,unknown");
  expect(query?.get("sort")).toBe("memory");
});

test("typing into a filter changes the address", async () => {
  server([]);
  const { router } = renderPage(<Component />, { path: "/processes" });

  await userEvent.type(screen.getByLabelText("Namespace"), "db{Enter}");

  await waitFor(() => expect(router.state.location.search).toBe("?namespace=db"));
});

test("a host that is away is said in words", async () => {
  server([row("nginx", { online: false })]);
  renderPage(<Component />, { path: "/processes" });

  expect(await screen.findByText("Host away")).toBeTruthy();
});

test("an error shows its request id and a way to try again", async () => {
  fakeApi({
    "GET /api/v1/processes": () => ({
      status: 500,
      body: { error: { code: "internal", message: "a defect" } },
      headers: { "x-request-id": "req-9" },
    }),
  });
  renderPage(<Component />, { path: "/processes" });

  expect(await screen.findByText("req-9")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Try again" })).toBeTruthy();
});

test("the page is in Chinese, too", async () => {
  server([]);
  renderPage(<Component />, { path: "/processes", language: "zh" });

  expect(await screen.findByText("还没有注册进程")).toBeTruthy();
});

test("a selection survives the next page, a refresh and another order", async () => {
  const first = Array.from({ length: 250 }, (_, index) => row(`a-${String(index).padStart(3, "0")}`));
  fakeApi({
    "GET /api/v1/processes": (_, url) => {
      if (url.searchParams.get("after")) return { body: { processes: [row("z")] } };
      const rows = url.searchParams.get("sort") === "cpu" ? [...first].reverse() : first;
      return { body: { processes: rows, next: "n" } };
    },
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
  });
  const { client } = renderPage(<Component />, { path: "/processes" });
  await screen.findByText("web/a-001");
  const boxes = () => screen.getAllByRole<HTMLInputElement>("checkbox", { name: "Select row" });

  await userEvent.click(boxes()[0] as HTMLElement);
  await userEvent.click(boxes()[1] as HTMLElement);
  await client.refetchQueries({ queryKey: ["processes"] });
  expect(screen.getByText("2 selected")).toBeTruthy();
  await userEvent.click(screen.getByTitle("Sort by CPU"));
  await screen.findByText("web/a-249");
  expect(screen.getByText("2 selected")).toBeTruthy();
  await userEvent.click(screen.getByTitle("Sort by Process"));
  await screen.findByText("web/a-000");

  expect(boxes().filter((box) => box.checked)).toHaveLength(2);
});

import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component as HostPage } from "./host-page";
import { Component as HostsPage } from "./hosts-page";

const host = {
  host: "0:10.0.0.7",
  cloud: 0,
  supplier: 0,
  ip: "10.0.0.7",
  agent: "agent-7",
  online: false,
  enrolled_at: 1,
  presence_changed_at: 2,
  facts: {
    hostname: "edge-7",
    os: "linux",
    arch: "x86_64",
    cpus: 4,
    memory_bytes: 1,
    agent_version: "0.1.0",
  },
};

function server(status = 200) {
  return fakeApi({
    "GET /api/v1/hosts/": () => ({ status, body: host }),
    "GET /api/v1/hosts": () => ({ body: { hosts: [host] } }),
    "GET /api/v1/overview": () => ({ status: 500, body: {} }),
    "GET /api/v1/processes": () => ({ body: { processes: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
  });
}

test("the list asks the server to narrow by state, version and text", async () => {
  const asked = server();
  renderPage(<HostsPage />, { path: "/hosts?state=away&version=0.1.0&q=edge" });

  expect(await screen.findByText("edge-7")).toBeTruthy();
  const query = asked.find((each) => each.url.pathname === "/api/v1/hosts")?.url.searchParams;
  expect(Object.fromEntries(query ?? [])).toMatchObject({ state: "away", version: "0.1.0", q: "edge" });
});

test("a host that never enrolled is not found, and the list is not read for it", async () => {
  const asked = fakeApi({
    "GET /api/v1/hosts/": () => ({ status: 404, body: { error: { code: "not_found", message: "no host" } } }),
  });
  renderPage(<HostPage />, { path: "/hosts/x" });

  expect(await screen.findByText("Not found")).toBeTruthy();
  expect(asked.some((each) => each.url.pathname === "/api/v1/hosts")).toBe(false);
});

const online = { ...host, online: true };

test("a connected host says how long its agent takes to answer", async () => {
  fakeApi({
    "GET /api/v1/hosts/": () => ({ body: { ...online, link: { rtt_us: 2345, measured_at: 1000 } } }),
    "GET /api/v1/processes": () => ({ body: { processes: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
  });
  renderPage(<HostPage />, { path: "/hosts/x" });

  expect(await screen.findByText(/^2\.3 ms/)).toBeTruthy();
});

test("a host in maintenance says why, until when and what that means", async () => {
  fakeApi({
    "GET /api/v1/hosts/": () => ({
      body: { ...online, cordon: { reason: "new disk", by: "ana", since: 1, until: 4_000_000_000 } },
    }),
    "GET /api/v1/processes": () => ({ body: { processes: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
  });
  renderPage(<HostPage />, { path: "/hosts/x" });

  expect(await screen.findByText(/new disk/)).toBeTruthy();
  expect(screen.getByText(/Starts, restarts and manage operations are refused here/)).toBeTruthy();
  expect(screen.getByRole("button", { name: /End maintenance/ })).toBeTruthy();
  expect(screen.queryByRole("button", { name: /Maintenance…/ })).toBeNull();
});

test("maintenance begins with a reason and an end", async () => {
  const asked = fakeApi({
    "GET /api/v1/hosts/": () => ({ body: online }),
    "PUT /api/v1/hosts/0%3A10.0.0.7/cordon": () => ({ body: online }),
    "GET /api/v1/processes": () => ({ body: { processes: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
  });
  renderPage(<HostPage />, { path: "/hosts/x" });

  await userEvent.click(await screen.findByRole("button", { name: /Maintenance…/ }));
  const begin = await screen.findByRole<HTMLButtonElement>("button", { name: "Begin maintenance" });
  expect(begin.disabled).toBe(true);
  await userEvent.type(screen.getByLabelText("Reason"), "new disk");
  await userEvent.click(begin);

  await waitFor(() => expect(asked.some((each) => each.method === "PUT")).toBe(true));
  expect(asked.find((each) => each.method === "PUT")?.body).toEqual({ reason: "new disk", ttl_secs: 3600 });
});

test("who may not operate is not offered maintenance", async () => {
  server();
  renderPage(<HostPage />, { path: "/hosts/x", rights: { read: ["everything"] } });

  const button = await screen.findByRole<HTMLButtonElement>("button", { name: /Maintenance…/ });
  expect(button.disabled).toBe(true);
});

import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Attention, Overview } from "@/api/overview";
import { en } from "@/messages/en";
import { zh } from "@/messages/zh";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { pathOf, reasonOf } from "./attention";
import { groupHosts } from "./fleet-map";
import { stack } from "./history";
import { Component } from "./overview-page";

const concern = (more: Partial<Attention>): Attention => ({
  kind: "failed",
  severity: "critical",
  process: null,
  host: null,
  count: 1,
  hosts: [],
  since: null,
  reason: "",
  ...more,
});

const calm: Overview = {
  at_ms: 1,
  hosts: { total: 3, online: 3, away: 0, revoked: 0 },
  processes: {
    total: 5,
    phases: { unknown: 0, stopped: 0, starting: 0, running: 5, stopping: 0, waiting: 0, failed: 0 },
    unhealthy: 0,
    crash_looping: 0,
    evicted: 0,
  },
  tasks: { running: 0, paused: 0 },
  attention: [],
  attention_total: 0,
  agent_versions: [{ version: "0.1.0", hosts: 3 }],
  certificates_ending: [],
  certificates_ending_total: 0,
};

function server(overview: Overview) {
  return fakeApi({
    "GET /api/v1/overview": () => ({ body: overview }),
    "GET /api/v1/overview/map": () => ({
      body: { at_ms: 1, hosts: ["0:10.0.0.1"], business: [null], worst: ["running"] },
    }),
    "GET /api/v1/events/histogram": (_, url) => ({
      body: {
        step: Number(url.searchParams.get("step")),
        from: Number(url.searchParams.get("since")),
        series: { restart_succeeded: [7] },
      },
    }),
    "GET /api/v1/tasks": () => ({ body: { tasks: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
  });
}

test("a fleet without trouble says so in one line", async () => {
  server(calm);
  renderPage(<Component />);

  expect(await screen.findByText("All is well")).toBeTruthy();
  expect(screen.getByText("No process has failed, no host is away.")).toBeTruthy();
  expect(await screen.findByTitle("7 restarts in the last hour")).toBeTruthy();
});

test("each number has its change since an hour ago", async () => {
  const at_ms = 4_000_000;
  const earlier = { at_ms: at_ms - 3_600_000, away: 0, failed: 3, crash_looping: 0, evicted: 0 };
  const hosts = { ...calm.hosts, away: 2 };
  server({ ...calm, at_ms, hosts, earlier });
  renderPage(<Component />);

  expect(await screen.findByText("+2 in an hour")).toBeTruthy();
  expect(screen.getByText("−3 in an hour")).toBeTruthy();
  expect(screen.getAllByText("no change in an hour").length).toBe(2);
});

test("what is wrong comes with its reason and leads to where it can be looked into", async () => {
  const failed = concern({ process: "web/nginx", count: 12, reason: "exit code 1" });
  server({ ...calm, attention: [failed], attention_total: 1 });
  renderPage(<Component />);

  expect(await screen.findByText("1 thing needs attention")).toBeTruthy();
  expect(screen.getByRole("link", { name: "web/nginx" }).getAttribute("href")).toBe("/processes/web/nginx");
  expect(screen.getByText("exit code 1")).toBeTruthy();
  expect(screen.getByText("on 12 hosts")).toBeTruthy();
});

test("no host yet leads to enrolment", async () => {
  server({ ...calm, hosts: { total: 0, online: 0, away: 0, revoked: 0 } });
  renderPage(<Component />);

  expect(await screen.findByRole("link", { name: "Enrol the first host" })).toBeTruthy();
});

test("hosts that are away are named, as far as there is room", () => {
  const reason = { reason: "the agent is not connected", reason_id: "host_agent_away", reason_args: {} };
  const away = concern({ kind: "host_away", count: 3, hosts: ["0:a", "0:b"], ...reason });

  expect(reasonOf(away, en)).toBe("the agent is not connected: 0:a, 0:b, …");
  expect(reasonOf(away, zh)).toBe("Agent 未连接: 0:a, 0:b, …");
  expect(pathOf(away)).toBe("/hosts?state=away");
  expect(pathOf({ ...away, host: "0:a" })).toBe("/hosts/0%3Aa");
});

test("lines about hosts lead to the hosts that they count", () => {
  const path = (kind: Attention["kind"]) => pathOf(concern({ kind, count: 2 }));

  expect(path("host_unreachable")).toBe("/hosts?state=unreachable");
  expect(path("awaits_approval")).toBe("/hosts?state=awaits_approval");
  expect(path("clock_off")).toBe("/hosts?trouble=clock_off");
});

test("hosts in maintenance are apart from the numbers and their links", async () => {
  const phases = { ...calm.processes.phases, failed: 2 };
  server({
    ...calm,
    hosts: { ...calm.hosts, cordoned: 4 },
    clouds: [
      { cloud: 0, total: 5, online: 3, away: 2, revoked: 0 },
      { cloud: 7, total: 1, online: 1, away: 0, revoked: 0 },
    ],
    clouds_total: 2,
    processes: { ...calm.processes, total: 11, cordoned: 6, phases },
  });
  renderPage(<Component />);

  const failed = await screen.findAllByRole("link", { name: /Failed/ });
  expect(failed.map((link) => link.getAttribute("href"))).toEqual([
    "/processes?phase=failed&cordoned=false",
    "/processes?phase=failed&cordoned=false",
  ]);
  const link = (name: string) => screen.getByRole("link", { name }).getAttribute("href");
  expect(link("In maintenance")).toBe("/hosts?state=cordoned");
  expect(link("On hosts in maintenance")).toBe("/processes?cordoned=true");
  expect(link("Away 2")).toBe("/hosts?cloud=0&state=away");
  expect(link("Cloud area 7")).toBe("/hosts?cloud=7");
});

test("cells are grouped by cloud area and business, the largest first", () => {
  const groups = groupHosts({
    at_ms: 1,
    hosts: ["0:10.0.0.1", "0:10.0.0.2", "0:10.0.0.3", "3:10.0.0.1"],
    business: [2, null, null, null],
    worst: ["running", "failed", "away", "empty"],
  });

  expect(groups.map((group) => [group.cloud, group.business, group.tones])).toEqual([
    [0, null, ["failed", "warning"]],
    [0, 2, ["running"]],
    [3, null, ["empty"]],
  ]);
});

test("bars are stacked upon each other", () => {
  const day = { step: 10, from: 100, series: { restart_succeeded: [1, 2], limit_exceeded: [3, 0] } };

  const { times, tops } = stack(day, 2);

  expect(times).toEqual([105, 115]);
  expect(tops).toEqual([
    [1, 2],
    [4, 2],
    [4, 2],
    [4, 2],
  ]);
});

import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { Process, Usage as UsageView } from "@/api/processes";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import Usage from "./usage";
import { draw } from "./usage-lines";

// jsdom draws nothing.
vi.mock("@/ui/chart", () => ({
  Chart: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

const point = (at: number, cpu: number, restarted = false) => ({
  at,
  cpu,
  cpu_max: cpu * 2,
  memory: 1,
  memory_max: 1,
  restarted,
});

const usage: UsageView = {
  process: "web/nginx",
  host: "0:10.0.0.1",
  range: "1h",
  state: "kept",
  step: 10,
  points: [point(10_000, 1), point(10_010, 2), point(10_100, 3), point(10_110, 4, true)],
  cpu_limit: 20,
  memory_limit: null,
};

const instance = { host: "0:10.0.0.1", process: "web/nginx", online: true } as Process;
const PATH = "/api/v1/processes/web/nginx/usage";

function show(answer: Partial<UsageView>, path = "/?tab=usage") {
  const asked = fakeApi({
    [`GET ${PATH}`]: (_, url) => ({
      body: { ...usage, range: url.searchParams.get("range"), ...answer },
    }),
  });
  renderPage(<Usage process="web/nginx" instances={[instance]} />, { path });
  return asked;
}

test("gaps and restarts break the lines, and the axis covers the whole range", () => {
  const drawn = draw(usage);

  expect(drawn?.times[0]).toBe(10_110 + 10 - 3600 - 1);
  const known = drawn?.times.map((at, index) => [at, drawn.cpu[index]]);
  expect(known?.slice(-6)).toEqual([
    [10_000, 1],
    [10_010, 2],
    [10_099, null],
    [10_100, 3],
    [10_109, null],
    [10_110, 4],
  ]);
  expect(drawn?.restarts).toEqual([10_110]);
  expect(draw({ ...usage, points: [] })).toBeUndefined();
});

test("times rise, whatever the points are", () => {
  const points = [point(1, 1), point(10_109, 1, true), point(10_110, 1, true), point(10_111, 1)];
  const times = draw({ ...usage, points })?.times ?? [];

  expect(times.every((at, index) => index === 0 || at > (times[index - 1] ?? 0))).toBe(true);
});

test("both charts are shown with the step and the limit, and the range can be changed", async () => {
  const asked = show({});

  expect(await screen.findByRole("img", { name: /^CPU/ })).toBeTruthy();
  expect(screen.getByRole("img", { name: /^Memory/ })).toBeTruthy();
  expect(screen.getByText(/every 10 s/)).toBeTruthy();
  expect(screen.getByText(/Limit 20/i)).toBeTruthy();
  await userEvent.click(screen.getByText("7 days"));
  await screen.findByRole("img", { name: /^CPU/ });
  const ranges = asked.filter((each) => each.url.pathname === PATH);
  expect(ranges.map((each) => each.url.searchParams.get("range"))).toEqual(["1h", "7d"]);
});

test.each([
  ["offline", /not connected/],
  ["agent_too_old", /too old/],
  ["no_answer", /did not answer/],
  ["not_kept", /more processes/],
] as const)("a host that is %s is said to be", async (state, words) => {
  show({ state, points: [] });

  expect(await screen.findByText(words)).toBeTruthy();
});

test("nothing recorded and an error are two things", async () => {
  show({ points: [] });
  expect(await screen.findByText(/nothing was recorded/i)).toBeTruthy();
});

test("an error can be tried again", async () => {
  fakeApi({
    [`GET ${PATH}`]: () => ({ status: 500, body: { error: { code: "internal", message: "broken" } } }),
  });
  renderPage(<Usage process="web/nginx" instances={[instance]} />, { path: "/" });

  expect(await screen.findByRole("alert")).toBeTruthy();
});

test("evictions within the range are told and marked", async () => {
  const events = [10_050, 1000].map((at, id) => ({ id, type: "limit_exceeded", at_ms: at * 1000 }));
  fakeApi({
    [`GET ${PATH}`]: () => ({ body: usage }),
    "GET /api/v1/events": () => ({ body: { events, next: 0 } }),
  });
  renderPage(<Usage process="web/nginx" instances={[instance]} />, { path: "/?tab=usage" });

  expect(await screen.findByText(/^1 eviction /)).toBeTruthy();
});

import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { PlannedPool, Pool } from "@/api/server";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { PoolDialog } from "./pool-dialog";
import { overOf } from "./pool-plan";

type Answer = { status?: number; body: unknown };

const planned = (host: string, more: Partial<PlannedPool> = {}): PlannedPool => ({
  host,
  namespace: "web",
  id: "web",
  set: false,
  changes: [],
  online: true,
  usage: { members: 2, cpu_percent: 1, memory_percent: 2 },
  ...more,
});
const onHosts = (count: number) => ({
  body: { pools: Array.from({ length: count }, (_, index) => planned(`0:10.0.0.${index}`)) },
});
const failed = { status: 500, body: { error: { code: "internal", message: "no plan" } } };

/** A dialog with a namespace in it, and what pools were set on. */
async function open(plan: () => Answer | Promise<Answer>) {
  const asked = fakeApi({
    "POST /api/v1/pools/plan": plan,
    "PUT /api/v1/pools": () => ({ body: { rows: [] } }),
  });
  renderPage(<PoolDialog onClose={() => undefined} />);
  await userEvent.type(await screen.findByLabelText("Namespace"), "web");
  return () =>
    asked.filter((each) => each.method === "PUT").map((each) => (each.body as { hosts: string[] }).hosts);
}

const save = (name: RegExp) => screen.findByRole("button", { name }) as Promise<HTMLButtonElement>;

test("nothing can be set before its plan is there", async () => {
  const saved = await open(() => new Promise(() => undefined));

  expect((await save(/Set on/)).disabled).toBe(true);
  expect(await screen.findByText("Working out the plan…")).toBeTruthy();
  expect(saved()).toEqual([]);
});

test("nor where the plan failed, and one can ask again", async () => {
  let answer: Answer = failed;
  await open(() => answer);
  expect(await screen.findByText("no plan")).toBeTruthy();
  expect((await save(/Set on/)).disabled).toBe(true);

  answer = onHosts(3);
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));

  await waitFor(async () => expect((await save(/Set on 3 hosts/)).disabled).toBe(false));
});

test("many hosts are typed", async () => {
  const saved = await open(() => onHosts(60));
  const field = await screen.findByLabelText("Type 60 to confirm");
  expect((await save(/Set on 60 hosts/)).disabled).toBe(true);

  await userEvent.type(field, "60");
  await userEvent.click(await save(/Set on 60 hosts/));

  await waitFor(() => expect(saved()).toHaveLength(1));
});

test("it is set only where the plan says that something changes", async () => {
  const refused = { code: 403, name: "forbidden", message: "ana may not" };
  const saved = await open(() => ({
    body: {
      pools: [
        planned("0:10.0.0.1"),
        planned("0:10.0.0.2", { set: true }),
        planned("0:10.0.0.3", { refused }),
        planned("0:10.0.0.4", { online: false }),
      ],
    },
  }));

  await userEvent.click(await save(/Set on 2 hosts/));

  await waitFor(() => expect(saved()).toEqual([["0:10.0.0.1", "0:10.0.0.4"]]));
  expect(screen.getByText("1 not allowed")).toBeTruthy();
  expect(screen.getByText("1 when the host reconnects")).toBeTruthy();
});

test("a dry run that ends tells whom it would cost", async () => {
  const usage = { members: 1, cpu_percent: 1, memory_percent: 31.2 };
  const changes = [{ path: "dry_run", from: true, to: false }];
  fakeApi({
    "POST /api/v1/pools/plan": () => ({
      body: { pools: [planned("0:10.0.0.1", { set: true, usage, changes })] },
    }),
  });
  const pool: Pool = {
    host: "0:10.0.0.1",
    agent: "a",
    namespace: "web",
    id: "web",
    cpu: 50,
    memory: 25,
    cpu_weight: "usage",
    memory_weight: "usage",
    dry_run: true,
  };
  renderPage(<PoolDialog pool={pool} wish={{ dry_run: false }} onClose={() => undefined} />);

  expect(await screen.findByText("1 over the new limit now")).toBeTruthy();
  expect(screen.getByText(/Memory at 31 %, limit 25 %: evicts at once/)).toBeTruthy();
});

test("a limit is exceeded by more than it", () => {
  const setting = {
    namespace: "web",
    id: "web",
    cpu: 1,
    memory: 2,
    cpu_weight: "usage" as const,
    memory_weight: "usage" as const,
  };

  expect(overOf(planned("h"), setting)).toEqual([]);
  expect(overOf(planned("h"), { ...setting, cpu: 0.5 })).toEqual(["cpu"]);
  expect(overOf(planned("h"), undefined)).toEqual([]);
});

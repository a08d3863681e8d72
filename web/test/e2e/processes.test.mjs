import { appendFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { call, openPage } from "./support.mjs";

let world;
afterEach(() => world?.close());

test("filters are in the address and narrow the list", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/processes");
  await page.getByLabel("Namespace").fill("web");
  await page.waitForURL("**namespace=web");

  await page.getByRole("link", { name: "web/edge-proxy" }).first().waitFor();
  expect(await page.getByRole("link", { name: "swarm/p-0" }).count()).toBe(0);
});

test("rows are selected by keys and lead to a plan", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/processes?namespace=web");
  await page.getByRole("link", { name: "web/edge-proxy" }).first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("1 selected").waitFor();
  await page.getByRole("button", { name: "Restart…" }).click();

  await page.getByText("1 will run").waitFor();
  await page.getByRole("button", { name: "Restart 1 process" }).waitFor();
});

test("a long list scrolls to its end", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/processes");
  const table = page.getByRole("table", { name: "Processes" });
  await table.getByRole("row").nth(5).waitFor();
  for (let step = 0; step < 40; step += 1) {
    await table.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await page.waitForTimeout(100);
  }

  await page.getByText("数据/索引构建").first().waitFor();
  expect(await table.getByRole("row").count()).toBeLessThan(100);
});

test("a process is registered from the form, changed, and its history compared", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/register");
  await page.getByLabel("Namespace").fill("e2e");
  await page.getByLabel("Name", { exact: true }).fill("made-here");
  await page.getByRole("textbox", { name: "Hosts" }).fill("127.0.0.1");
  await page.getByLabel("Executable").fill("sleep");
  await page.getByLabel("Directory").fill("/tmp");
  await page.getByLabel("Pid file").fill("/tmp/made-here.pid");
  await page.getByRole("button", { name: "Register on 1 host" }).click();
  await page.waitForURL("**/processes/e2e/made-here**");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Memory (%)").fill("40");
  await page.getByText("limits.memory").waitFor();
  await page.getByRole("button", { name: "Save on 1 host" }).click();
  await page.waitForURL("**/processes/e2e/made-here**");
  await page.getByText("History").click();

  await page.locator(".diff-line.is-added", { hasText: "40" }).waitFor();
  await call("DELETE", "/processes/e2e/made-here", { all: true });
});

test("a crash shows up in the live tail", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/events?namespace=web&name=edge-proxy");
  await page.getByText("Live").waitFor();
  const before = await page.getByText("Restarted").count();
  const { processes } = await call("GET", "/processes?namespace=web&name=edge-proxy");
  process.kill(processes[0].pid, "SIGKILL");

  await page.getByText("Restarted").nth(before).waitFor({ timeout: 60_000 });
});

test("the usage of a process is drawn for an hour and for a week", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/processes/web/edge-proxy?tab=usage");
  await page.getByText("one point every 10 s").waitFor();
  await page.getByRole("img", { name: /^CPU/ }).locator("canvas").waitFor();
  await page
    .getByRole("img", { name: /^Memory/ })
    .locator("canvas")
    .waitFor();
  await page.getByText("7 days").click();
  await page.waitForURL("**range=7d**");

  await page.getByText("one point every 5 min").waitFor();
  await page.getByRole("img", { name: /^CPU/ }).locator("canvas").waitFor();
  await open("/processes/swarm/p-1?tab=usage");
  await page.getByText("too old to record usage").waitFor();
});

test("the log of a process is shown, followed, and told apart from one that cannot be read", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/processes/web/edge-proxy?tab=log");
  const log = page.locator("pre.log-text");
  await log.getByText("edge-proxy is ready").first().waitFor();
  const { processes } = await call("GET", "/processes?namespace=web&name=edge-proxy&full=true");
  appendFileSync(processes[0].spec.identity.log_path, "a line of its own \u001b[31min red\u001b[0m\n");

  await log.getByText("a line of its own in red").waitFor();
  await open("/processes/swarm/p-1?tab=log");
  await page.getByText("The spec names no log_path: set it to see the log here").waitFor();
  await open("/hosts/0:127.0.0.1");
  await page.getByText("Link latency").waitFor();
  await page.getByText(/^[\d.]+ ms/).waitFor();
});

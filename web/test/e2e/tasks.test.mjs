import { afterEach, expect, test } from "vitest";
import { openPage } from "./support.mjs";

let world;
afterEach(() => world?.close());

test("a restart is planned, confirmed by its number and watched to the end", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/operate?op=restart&process=swarm/p-1");
  const button = page.getByRole("button", { name: /Restart \d+ processes/ });
  await button.waitFor();
  expect(await button.isDisabled()).toBe(true);
  const count = /\d+/.exec(await button.textContent())[0];
  await page.getByLabel(`Type ${count} to confirm`).fill(count);
  await button.click();

  await page.waitForURL("**/tasks/**");
  await page.locator(".task-counts span", { hasText: /^0 Pending$/ }).waitFor({ timeout: 60_000 });
  const [succeeded] = /\d+/.exec(await page.locator(".task-counts").textContent());
  expect(Number(succeeded)).toBeGreaterThan(0);
});

test("a rolling restart pauses after its canary and is resumed", async () => {
  world = await openPage();
  const { page, open } = world;

  await open(
    "/operate?op=restart&process=swarm/p-2&hosts=10.64.0.1,10.64.0.2,10.64.0.3,10.64.0.4&parallel=2&canary=1&failures=4",
  );
  await page.getByRole("button", { name: "Restart 4 processes" }).click();
  await page.waitForURL("**/tasks/**");
  await page.getByText("Paused after the canary", { exact: false }).waitFor({ timeout: 30_000 });
  await page.getByRole("button", { name: "Continue with the other 3" }).click();

  await page.getByText("4 of 4 released").waitFor({ timeout: 30_000 });
});

test("a paused task is cancelled", async () => {
  world = await openPage();
  const { page, open } = world;

  await open(
    "/operate?op=restart&process=swarm/p-2&hosts=10.64.0.5,10.64.0.6&parallel=1&canary=1&failures=4",
  );
  await page.getByRole("button", { name: "Restart 2 processes" }).click();
  await page.waitForURL("**/tasks/**");
  await page.getByRole("button", { name: "Continue with the other 1" }).waitFor({ timeout: 30_000 });
  await page.getByRole("button", { name: "Cancel task" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel 1 pending target" }).click();

  await page.locator(".page-title").getByText("Cancelled").waitFor({ timeout: 30_000 });
});

test("the targets that failed are tried again in a new task", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/operate?op=start&process=web/bad-config");
  await page.getByRole("button", { name: "Start 1 process" }).click();
  await page.waitForURL("**/tasks/**");
  const first = page.url();
  await page.getByRole("button", { name: "Retry 1 failed…" }).click();
  await page.waitForURL("**/operate?retry=*");
  await page.getByText("1 will run").waitFor();
  await page.getByRole("button", { name: "Retry 1 failed", exact: true }).click();

  await page.waitForURL((url) => url.pathname.startsWith("/tasks/") && url.href !== first);
  await page.getByText("Retry of").waitFor();
  await page.getByRole("row", { name: /unknown key upstrem/ }).click();
  await page.getByRole("dialog").locator("pre", { hasText: "unknown key upstrem" }).waitFor();
  const shared = page.url();
  await page.goto("about:blank");
  await page.goto(shared);
  await page.getByRole("dialog").locator("pre", { hasText: "unknown key upstrem" }).waitFor();
});

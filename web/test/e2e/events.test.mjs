import { readFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { call, openPage } from "./support.mjs";

let world;
afterEach(() => world?.close());

test("a bar of the histogram narrows the events to its step", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/events?type=started");
  await page.getByText(/[\d,]+ events in the last hour/).waitFor();
  await page.locator(".bars button:has(span)").last().click();

  await page.waitForURL(/since=\d+&until=\d+/);
  await page.getByText("Past").waitFor();
  await page
    .getByRole("row", { name: /Started/ })
    .first()
    .waitFor();
  const query = new URL(page.url()).searchParams;
  const [since, until] = [Number(query.get("since")) * 1000, Number(query.get("until")) * 1000];
  const { events } = await call("GET", `/events?type=started&since_ms=${since}&until_ms=${until}&limit=1000`);
  expect(events.length).toBeGreaterThan(0);
  expect(await page.getByRole("table", { name: "Events" }).getAttribute("aria-rowcount")).toBe(
    String(Math.min(events.length, 500)),
  );
});

test("a filtered list is exported whole, whatever of it is loaded", async () => {
  world = await openPage();
  const { page, open } = world;
  const { total } = await call("GET", "/processes?namespace=swarm&count=true&limit=1");
  expect(total).toBeGreaterThan(500);

  await open("/processes?namespace=swarm");
  await page.getByText(`${total} rows`).waitFor();
  await page.getByRole("button", { name: "Export" }).click();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("menuitem", { name: "Export as CSV" }).click(),
  ]);

  const lines = readFileSync(await file.path(), "utf8").split("\r\n");
  expect(lines).toHaveLength(total + 1);
  expect(lines[0]).toBe("\ufeffprocess,host,phase,reason,online,pid,cpu_percent,memory_percent,restarts");
});

test("the number of the overview leads to exactly those processes", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/");
  await page
    .getByRole("link", { name: /Crash-looping/ })
    .first()
    .click();

  await page.waitForURL("**/processes?trouble=crash_looping");
  const { processes } = await call("GET", "/processes?trouble=crash_looping&limit=1000");
  expect(processes.every((process) => process.managed && process.restarts >= 3)).toBe(true);
});

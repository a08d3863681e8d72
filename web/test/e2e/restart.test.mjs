import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { openBrowser } from "../browser.mjs";
import { consoleOf } from "../console.mjs";
import { end, endSupervised, freePort, startServer } from "../fleet.mjs";

const undo = [];
afterEach(async () => {
  for (const step of undo.reverse()) await step();
});

test("the printed link signs in once, and a page outlives a restart of the server: it says so, keeps what it has and goes on", async () => {
  const dir = mkdtempSync(join(tmpdir(), "proctor-restart-"));
  undo.push(async () => {
    await endSupervised(dir);
    rmSync(dir, { recursive: true, force: true });
  });
  const [http, link] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${http}`;
  const first = await startServer(dir, http, link);
  const web = await consoleOf(url);
  undo.push(() => web.stop());
  const { context, close } = await openBrowser();
  undo.push(close);
  const page = await context.newPage();
  const printed = new URL(first.signInLink);
  expect(printed.origin).toBe(url);
  await page.goto(web.url + printed.pathname + printed.search + printed.hash);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.goto(`${web.url}/processes`);
  await page.getByRole("link", { name: "demo/heartbeat" }).waitFor();

  await end(first.child);
  await page.getByText("No connection to the server since", { exact: false }).waitFor({ timeout: 30_000 });
  expect(await page.getByRole("link", { name: "demo/heartbeat" }).count()).toBe(1);

  const second = await startServer(dir, http, link);
  undo.push(() => end(second.child));
  await page.locator(".connection-bar").waitFor({ state: "detached", timeout: 40_000 });
  await page.getByRole("link", { name: "Hosts" }).click();
  await page.getByRole("link", { name: "0:127.0.0.1" }).waitFor();
});

import { readFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { pagesOf } from "../pages.mjs";
import { openPage, server, site, token } from "./support.mjs";

const axe = readFileSync(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

let world;
afterEach(() => world?.close());

test("keys lead to pages, the palette to anything", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/");
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.getByRole("heading", { name: "Hosts" }).waitFor();
  await page.keyboard.press("/");
  await page.getByRole("combobox", { name: "Command palette" }).fill("edge-proxy");
  await page.getByRole("option", { name: "web/edge-proxy" }).waitFor();
  await page.keyboard.press("Enter");

  await page.waitForURL("**/processes/web/edge-proxy");
});

test("theme and language change at once and are remembered", async () => {
  world = await openPage({ theme: "dark", language: "zh" });
  const { page, open } = world;

  await open("/");

  await page.getByRole("heading", { name: "总览" }).waitFor();
  expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe("dark");
  expect(await page.evaluate(() => document.documentElement.lang)).toBe("zh-CN");
});

test("a browser that is offline says so and keeps what it has", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/processes");
  await page.getByRole("link", { name: "swarm/p-0" }).first().waitFor();
  await page.context().setOffline(true);

  await page.getByText("This device is offline.", { exact: false }).waitFor();
  expect(await page.getByRole("link", { name: "swarm/p-0" }).count()).toBeGreaterThan(0);
  await page.context().setOffline(false);
});

for (const theme of ["light", "dark"]) {
  test(`no page has a serious finding of axe or a complaint of the browser (${theme})`, async () => {
    world = await openPage({ theme });
    const { page, open } = world;
    const findings = [];

    for (const [name, path] of Object.entries(await pagesOf({ url: server, token }))) {
      await open(path);
      await page
        .locator(".skeleton")
        .first()
        .waitFor({ state: "detached", timeout: 5000 })
        .catch(() => undefined);
      // The policy of the page allows no foreign script, so axe comes through the debugger.
      const { violations } = await page.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] })`);
      for (const each of violations) {
        if (each.impact !== "serious" && each.impact !== "critical") continue;
        findings.push(
          `${name}: ${each.id}: ${each.nodes
            .slice(0, 3)
            .map((node) => node.html.slice(0, 160))
            .join(" | ")}`,
        );
      }
    }

    expect(findings).toEqual([]);
  }, 300_000);
}

test("a page fits a phone", async () => {
  world = await openPage({ width: 390, height: 844 });
  const { page } = world;
  const wide = [];

  for (const [name, path] of Object.entries(await pagesOf({ url: server, token }))) {
    await page.goto(site + path);
    await page.locator("h1, .state").first().waitFor();
    const [needed, there] = await page.evaluate(() => [
      document.documentElement.scrollWidth,
      window.innerWidth,
    ]);
    if (needed > there) wide.push(`${name}: ${needed} px`);
  }

  expect(wide).toEqual([]);
}, 180_000);

import { readFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { pagesOf } from "../pages.mjs";
import { isEmbedded, openPage, server, site, token } from "./support.mjs";

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

  await page.getByText(/This device is offline.*of \d\d:\d\d:\d\d/).waitFor();
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
      findings.push(...(await seriousOf(page, name)), ...(await overflowOf(page, name)));
    }

    expect(findings).toEqual([]);
  }, 300_000);

  test(`nor has the sign-in, a dialog, a menu or the palette (${theme})`, async () => {
    world = await openPage({ theme });
    const { page, open } = world;
    const findings = [];
    const check = async (name) => findings.push(...(await seriousOf(page, name)));

    await open("/hosts/0%3A127.0.0.1");
    await page.getByRole("button", { name: "Maintenance…" }).click();
    await page.getByRole("dialog").waitFor();
    await check("maintenance");
    await open("/pools/0%3A127.0.0.1/web/web");
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").waitFor();
    await check("confirmation");
    await open("/access?tab=bindings");
    await page.getByRole("button", { name: "Add a binding" }).click();
    await page.getByRole("dialog").waitFor();
    await check("binding");
    await open("/processes");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await check("help");
    await open("/tasks");
    await page.getByRole("row").nth(1).waitFor();
    await page.getByRole("button", { name: "Export" }).click();
    await page.getByText("Export as CSV").waitFor();
    await check("export");
    await open("/processes");
    await page.keyboard.press("/");
    await page.getByRole("combobox", { name: "Command palette" }).fill("restart edge");
    await page.getByRole("option").first().waitFor();
    await check("palette");
    await page.context().clearCookies();
    await page.goto(`${site}/sign-in`);
    await page.getByLabel("Token", { exact: true }).waitFor();
    await check("sign-in");

    expect(findings).toEqual([]);
  });
}

/** What axe finds that keeps somebody from using the page. */
async function seriousOf(page, name) {
  // The policy of the page allows no foreign script, so axe comes through the debugger.
  const { violations } = await page.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] })`);
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => {
      const where = nodes.slice(0, 3).map((node) => node.html.slice(0, 160));
      return `${name}: ${id}: ${where.join(" | ")}`;
    });
}

/** A page that is wider than its window. */
async function overflowOf(page, name) {
  const [needed, there] = await page.evaluate(() => [
    document.documentElement.scrollWidth,
    window.innerWidth,
  ]);
  return needed > there ? [`${name}: ${needed} px in ${there} px`] : [];
}

test("the program serves the console itself, with its policy and cached files", async () => {
  expect(isEmbedded, "build the server after `npm run build`").toBe(true);
  const index = await fetch(`${server}/processes`, { headers: { accept: "text/html" } });
  const text = await index.text();
  const [script] = /\/assets\/[^"]+\.js/.exec(text);
  const asset = await fetch(server + script, { headers: { "accept-encoding": "gzip" } });
  await asset.arrayBuffer();
  const known = { "if-none-match": asset.headers.get("etag"), "accept-encoding": "gzip" };
  const again = await fetch(server + script, { headers: known });
  const missing = await fetch(`${server}/assets/nothing-here.js`);

  expect(index.headers.get("content-security-policy")).toContain("default-src 'self'");
  expect(asset.headers.get("content-encoding")).toBe("gzip");
  expect(asset.headers.get("cache-control")).toContain("immutable");
  expect(again.status).toBe(304);
  expect(missing.status).toBe(404);
});

test("a page fits a phone", async () => {
  world = await openPage({ width: 390, height: 844 });
  const { page } = world;
  const wide = [];

  for (const [name, path] of Object.entries(await pagesOf({ url: server, token }))) {
    await page.goto(site + path);
    await page.locator("h1, .state").first().waitFor();
    wide.push(...(await overflowOf(page, name)));
  }

  expect(wide).toEqual([]);
}, 180_000);

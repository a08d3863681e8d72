// Somebody with the smallest right, and texts that come from elsewhere: nothing of it runs, leads away or stays.
import { appendFileSync, copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { call, home, openPage, server, site, token, userWith } from "./support.mjs";

const HOST = "/hosts/0%3A127.0.0.1";
const undo = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function open(options) {
  const world = await openPage(options);
  undo.push(world.close);
  return world;
}

/** Markup that tells when a page takes it for its own. */
const evil = (where) => `<img src=x onerror="window.ranIn='${where}'">`;

test("markup in labels, commands, logs, reasons and names is shown as the text that it is", async () => {
  const dir = join(home, "e2e");
  mkdirSync(dir, { recursive: true });
  copyFileSync("/bin/sleep", join(dir, "marked"));
  const log = join(dir, "marked.log");
  appendFileSync(log, `${evil("log")}\n`);
  const name = evil("name");
  await call("POST", "/processes?update=true", {
    meta: { namespace: "hostile", name, labels: { env: evil("label").slice(0, 60) } },
    hosts: [{ ip: "127.0.0.1", bk_cloud_id: 0 }],
    spec: {
      identity: {
        proc_name: "marked",
        setup_path: dir,
        pid_path: join(dir, "marked.pid"),
        log_path: log,
        user: "root",
      },
      control: { start_cmd: `echo '${evil("output").replaceAll("'", '"')}'; exit 1` },
      resource: {},
      monitor_policy: { auto_type: 1, start_check_secs: 1 },
    },
  });
  undo.push(() => call("DELETE", `/processes/hostile/${encodeURIComponent(name)}`, { all: true }));
  const { task_id } = await call("POST", "/operations", {
    operation: "start",
    process: `hostile/${name}`,
    all: true,
  });
  await expect
    .poll(async () => (await call("GET", `/tasks/${task_id}`)).pending, { timeout: 30_000 })
    .toBe(0);
  await call("PUT", `${HOST}/cordon`, { reason: evil("reason"), ttl_secs: 600 });
  undo.push(() => call("DELETE", `${HOST}/cordon`));
  await call("PUT", "/businesses/66", { name: evil("business").slice(0, 60) });
  undo.push(() => call("DELETE", "/businesses/66"));
  const { page, open: go } = await open();
  const process = `/processes/hostile/${encodeURIComponent(name)}`;
  const shows = (text) => page.getByText(text).first().waitFor();

  const pages = [
    ["/processes?namespace=hostile", name],
    ["/processes?namespace=hostile&view=groups", name],
    [process, name],
    [`${process}?tab=timeline`, "<img"],
    [`${process}?tab=spec`, "<img"],
    [`${process}?tab=spec&view=json`, "<img"],
    [`${process}?tab=output`, "<img"],
    [`/tasks/${encodeURIComponent(task_id)}?target=0`, "<img"],
    [HOST, "<img"],
    ["/access?tab=businesses", "<img"],
    ["/audit", "cordon"],
    ["/", "Overview"],
  ];
  for (const [path, text] of pages) {
    await go(path);
    await shows(text);
    expect(await page.evaluate(() => window.ranIn), path).toBeUndefined();
    expect(await page.locator("img[src=x]").count(), path).toBe(0);
  }
  await go(`${process}?tab=log`);
  await shows("<img");
  expect(await page.evaluate(() => window.ranIn)).toBeUndefined();
});

test("a link to the sign-in leads nowhere else afterwards", async () => {
  for (const to of [
    "//evil.example",
    "/\\evil.example",
    "/\t/evil.example",
    "/.//evil.example",
    "https://evil.example",
  ]) {
    const { page } = await open({ as: "" });
    await page.goto(`${site}/sign-in?to=${encodeURIComponent(to)}`);
    await page.locator("input[type=password]").fill(token);
    await page.locator("button[type=submit]").click();
    await page.getByRole("heading", { name: "Overview" }).waitFor();

    expect(new URL(page.url()).origin, to).toBe(new URL(site).origin);
  }
});

test("a form of another site can do nothing with the session", async () => {
  const { page, open: go } = await open();
  await go("/");
  const cookies = await page.context().cookies(server);
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
  expect(cookies.length).toBeGreaterThan(0);
  expect(cookies.every((each) => each.httpOnly && each.sameSite !== "None")).toBe(true);
  const body = JSON.stringify({ operation: "stop", process: "web/edge-proxy", all: true });

  const send = (headers) =>
    fetch(`${server}/api/v1/operations`, { method: "POST", headers: { cookie, ...headers }, body });
  const form = await send({ "content-type": "text/plain", origin: "https://evil.example" });
  const guessed = await send({ "content-type": "application/json", "x-proctor-csrf": "guess" });

  expect(form.status).toBe(403);
  expect(guessed.status).toBe(403);
});

test("what one user has read is gone for the next one, in each tab", async () => {
  const viewer = await userWith(`next-${Date.now()}`, "viewer", "namespace:nothing-there");
  const { page, open: go } = await open({ as: token });
  await go("/processes");
  await page.getByRole("link", { name: "swarm/p-0" }).first().waitFor();
  const other = await page.context().newPage();
  await other.goto(`${site}/`);
  await other.getByRole("heading", { name: "Overview" }).waitFor();

  await other.getByRole("button", { name: /^Signed in as/ }).click();
  await other.getByRole("button", { name: "Sign out" }).click();
  await other.waitForURL("**/sign-in**");

  // The other tab asks anew and finds nobody signed in.
  await page.waitForURL("**/sign-in**");
  await page.locator("input[type=password]").fill(viewer);
  await page.locator("button[type=submit]").click();
  await page.waitForURL((address) => !address.pathname.startsWith("/sign-in"));
  await page.locator("h1").first().waitFor();
  expect(await page.getByText("swarm/p-0").count()).toBe(0);
  await page.goBack();
  await page.locator("h1").first().waitFor();
  expect(await page.getByText("swarm/p-0").count()).toBe(0);
});

test("whoever may read one namespace finds no other anywhere", async () => {
  const reader = await userWith(`reader-${Date.now()}`, "viewer", "namespace:web");
  const { page, open: go } = await open({ as: reader });

  for (const path of ["/", "/processes", "/hosts", "/pools", "/tasks", "/events"]) {
    await go(path);
    await page.locator(".skeleton").first().waitFor({ state: "detached" });

    expect(await page.getByText("swarm/p-").count(), path).toBe(0);
  }
  await go("/processes/swarm/p-1?do=unregister");
  await page.getByText("This process is not registered on any host that you may read.").waitFor();
});

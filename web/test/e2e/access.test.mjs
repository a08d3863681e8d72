import { afterEach, expect, test } from "vitest";
import { call, openPage } from "./support.mjs";

let world;
afterEach(() => world?.close());

test("a join token is made and its line is exact", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/enrol");
  await page.getByLabel("Cloud area").fill("3");
  await page.getByLabel("Hosts", { exact: true }).fill("25");
  await page.getByLabel("Address for agents").fill("proctor.example.com:9077");
  await page.getByRole("button", { name: "Create token" }).click();

  const line = page.locator(".command-line:not(.is-sample) pre");
  await line.waitFor();
  expect(await line.textContent()).toMatch(
    /^PROCTOR_TOKEN='\S+' proctor-agent install --server 'proctor\.example\.com:9077' --cloud-id 3$/,
  );
  await page.getByText("0 of 25 used").waitFor();
});

test("a user gets a role, and the page tells what that allows", async () => {
  world = await openPage();
  const { page, open } = world;
  const name = `reader-${Date.now()}`;

  await open("/access");
  await page.getByRole("button", { name: "Add a user" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill(name);
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.getByRole("cell", { name, exact: true }).waitFor();
  await call("POST", "/bindings", { role: "operator", subject: `user:${name}`, scope: "business:2" });
  await open(`/access?tab=check&subject=user:${name}`);

  const allowed = page.getByRole("table", { name: "What may somebody do?" });
  await allowed.getByRole("row", { name: /Operate operator on business:2 \(web\)/ }).waitFor();
  await allowed.getByRole("row", { name: "Administer Nothing" }).waitFor();
  await call("DELETE", `/users/${name}`);
});

test("the audit names who did it and says that its chain holds", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/audit?action=create_user");

  await page.getByText(/Chain of [\d,]+ entries is intact/).waitFor();
  await page
    .getByRole("row", { name: /create_user/ })
    .first()
    .waitFor();
  expect(await page.getByRole("row", { name: /create_app/ }).count()).toBe(0);
});

test("a test of a webhook shows what its receiver answered", async () => {
  const { webhooks } = await call("GET", "/webhooks");
  const { id, url } = webhooks[0];
  world = await openPage();
  const { page, open } = world;

  await open("/webhooks");
  const row = page.getByRole("row", { name: new RegExp(url) });
  await row.getByRole("button", { name: "Send a test" }).click();

  // Its receiver does not exist.
  const report = page.getByRole("status");
  await report.getByText("Not delivered").waitFor({ timeout: 30_000 });
  await report.getByText(/cannot reach the receiver/).waitFor();
  const { entries } = await call("GET", "/audit?action=test_webhook&order=desc");
  expect(entries.some((entry) => entry.targets.some((target) => target.includes(id)))).toBe(true);
});

test("a pool says who is next and why, and its dry run is switched", async () => {
  world = await openPage();
  const { page, open } = world;

  await open("/pools/0%3A127.0.0.1/web/web");
  await page.getByText(/Next in line: web\/session-store, score .+ ÷ 10 % = 0\.\d+/).waitFor();
  const dryRun = page.getByRole("switch", { name: "Dry run" });
  await dryRun.click();
  const plan = page.getByRole("dialog");
  await plan.getByText("dry run No → Yes").waitFor();
  await plan.getByRole("button", { name: "Set on 1 host" }).click();

  const isDry = async () =>
    (await call("GET", "/pools?host=127.0.0.1")).pools.find((pool) => pool.id === "web").dry_run;
  await expect.poll(isDry, { timeout: 30_000 }).toBe(true);
  await page.getByRole("switch", { name: "Dry run", checked: true }).click();
  await plan.getByRole("button", { name: "Set on 1 host" }).click();
  await expect.poll(isDry, { timeout: 30_000 }).toBe(false);
});

test("a pool is set and deleted by its plan, which says where it takes effect", async () => {
  world = await openPage();
  const { page, open } = world;
  const pools = async () => (await call("GET", "/pools?namespace=swarm&limit=1000")).pools.length;

  await open("/pools?do=set");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Namespace").fill("swarm");
  await dialog.getByLabel("Hosts").fill("127.0.0.1");
  await dialog.getByText("1 now").waitFor();
  await dialog.getByRole("button", { name: "Set on 1 host" }).click();
  await expect.poll(pools, { timeout: 30_000 }).toBe(1);
  await open("/pools/0%3A127.0.0.1/swarm/swarm?do=delete");
  await dialog.getByText("Deleted; members keep their own limits").waitFor();
  await dialog.getByRole("button", { name: "Delete on 1 host" }).click();

  await expect.poll(pools, { timeout: 30_000 }).toBe(0);
});

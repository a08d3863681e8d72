import { afterEach, expect, test } from "vitest";
import { end, NEW_VERSION, startAgent } from "../fleet.mjs";
import { call, home, link, openPage, userWith } from "./support.mjs";

const undo = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function open(options) {
  const world = await openPage(options);
  undo.push(world.close);
  return world;
}

const isOnline = async (ip) => {
  const { hosts } = await call("GET", "/hosts?state=online&limit=1000");
  return hosts.some(({ host }) => host === `0:${ip}`);
};

test("a relay is listed with its area, and the line for another one is exact", async () => {
  const { page, open: go } = await open();
  await go("/relays");
  await page.getByRole("row", { name: /3 Connected/ }).waitFor({ timeout: 30_000 });

  await page.getByRole("button", { name: "Add a relay" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Cloud area").fill("7");
  await dialog.getByLabel("Address of this server").fill("proctor.example.com:9077");
  await dialog.getByRole("button", { name: "Create token" }).click();

  const line = await dialog.locator(".command-line pre").textContent();
  expect(line).toMatch(
    /^PROCTOR_TOKEN='\S+' proctor relay --upstream 'proctor\.example\.com:9077' --listen '0\.0\.0\.0:9077' --cloud-id 7 --state-dir \/var\/lib\/proctor-relay$/,
  );
  const { tokens } = await call("GET", "/tokens");
  expect(tokens.some((token) => token.relay && token.cloud_id === 7)).toBe(true);
});

test("an upgrade says why it waits, is cancelled by count, and another one starts by its plan", async () => {
  const { page, open: go } = await open();
  await go("/upgrades");
  await page.getByRole("link", { name: NEW_VERSION }).first().click();
  await page.waitForURL("**/upgrades/**");
  await page
    .getByText(/no host of the earlier rings was upgraded/)
    .first()
    .waitFor({ timeout: 60_000 });
  await page
    .getByText(/its agent is too old to be upgraded over the link/)
    .first()
    .waitFor();

  await page.getByRole("button", { name: "Cancel upgrade" }).click();
  const yes = page.getByRole("dialog").getByRole("button", { name: /^Skip \d+ hosts$/ });
  expect(await yes.isDisabled()).toBe(true);
  const [waiting] = /\d+/.exec(await yes.textContent());
  await page.getByRole("dialog").getByRole("textbox").fill(waiting);
  await yes.click();
  await page.locator(".page-title").getByText("Cancelled").waitFor({ timeout: 30_000 });

  // What simulated agents cannot do, a real one does: it fetches the program, and finds that it is none.
  const ip = "127.0.0.5";
  const { token } = await call("POST", "/tokens", { uses: 1 });
  const agent = startAgent(home, link, token, ip);
  undo.push(() => call("DELETE", `/hosts/0:${ip}`));
  undo.push(() => end(agent));
  await expect.poll(() => isOnline(ip), { timeout: 60_000 }).toBe(true);
  await go("/upgrades?do=start");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("To version").click();
  await page.getByTitle(`${NEW_VERSION} (x86_64)`).click();
  await dialog.getByText("These", { exact: true }).click();
  await dialog.getByLabel("Hosts").fill(`0:${ip} 0:10.64.0.1`);
  await dialog.getByText(/Too old: /).waitFor();
  await dialog.getByRole("button", { name: "Upgrade 1 host", exact: true }).click();
  await page.waitForURL("**/upgrades/**");
  await page.locator(".page-title").getByText("Failed").waitFor({ timeout: 60_000 });
  await page.getByRole("img", { name: "Ring 1: Failed 1" }).waitFor();
  await page.getByText("failed hosts: 1 (allowed: 0)").first().waitFor();
});

test("a rotation of the authority is prepared and taken back", async () => {
  undo.push(() => call("POST", "/authority/abort", { force: true }).catch(() => undefined));
  const { page, open: go } = await open();
  await go("/authority");
  await page.getByRole("button", { name: "Prepare a rotation…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Announce a successor" }).click();
  await page.getByText("Successor announced").waitFor({ timeout: 30_000 });
  await page.getByRole("table", { name: "Who has followed" }).getByText("Agents").waitFor();

  await page.getByRole("button", { name: "Go back one step…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Go back", exact: true }).click();

  await page.getByText("In use", { exact: true }).waitFor({ timeout: 30_000 });
  expect((await call("GET", "/authority")).phase).toBe("idle");
});

test("who administers a part only is not offered what takes everything", async () => {
  const name = `part-${Date.now()}`;
  const token = await userWith(name, "admin", "business:2");
  undo.push(() => call("DELETE", `/users/${name}`));
  const { page, open: go } = await open({ as: token });

  await go("/hosts");
  expect(await page.getByRole("link", { name: "Upgrades" }).count()).toBe(0);
  expect(await page.getByText("Without agent").count()).toBe(0);
  await go("/upgrades");

  await page
    .getByText(/needs the right “Administer”/)
    .first()
    .waitFor();
});

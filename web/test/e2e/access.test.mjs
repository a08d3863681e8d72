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
  await page.getByRole("button", { name: "Make the token" }).click();

  const line = page.locator(".join-line:not(.is-waiting) pre");
  await line.waitFor();
  expect(await line.textContent()).toMatch(
    /^proctor-agent --server proctor\.example\.com:9077 --token \S+ --cloud-id 3 --state-dir \/var\/lib\/proctor-agent$/,
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

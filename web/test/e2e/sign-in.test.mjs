import { afterEach, expect, test } from "vitest";
import { call, openPage, site, token, userWith } from "./support.mjs";

let world;
afterEach(() => world?.close());

test("a page asks for a sign-in first and opens after it", async () => {
  world = await openPage({ as: "" });
  const { page } = world;

  await page.goto(`${site}/hosts?state=online`);
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();

  await page.getByRole("heading", { name: "Hosts" }).waitFor();
  expect(new URL(page.url()).search).toBe("?state=online");
});

test("a wrong token is refused and one stays at the door", async () => {
  world = await openPage({ as: "" });
  const { page } = world;

  await page.goto(`${site}/sign-in`);
  await page.getByLabel("Token", { exact: true }).fill("pt_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();

  await page.getByRole("alert").first().waitFor();
  expect(new URL(page.url()).pathname).toBe("/sign-in");
});

test("after the sign-out nothing is shown any more", async () => {
  world = await openPage({ as: token });
  const { page, open } = world;

  await open("/");
  await page.getByRole("button", { name: /^Signed in as/ }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/sign-in**");
  await page.goto(`${site}/processes`);

  await page.waitForURL("**/sign-in**");
});

test("a viewer is offered no operation and told why", async () => {
  const viewer = await userWith(`viewer-${Date.now()}`, "viewer", "everything");
  world = await openPage({ as: viewer });
  const { page, open } = world;

  await open("/processes/web/edge-proxy");

  const operate = page.getByRole("button", { name: "Operate" });
  await operate.waitFor();
  expect(await operate.isDisabled()).toBe(true);
  await page.locator(".guarded").first().hover();
  await page.getByText("Needs the right “Operate”").waitFor();
  expect(await page.getByRole("link", { name: "Access", exact: true }).count()).toBe(0);
});

test("a one-time link signs in once and leaves no code in the address", async () => {
  const name = `linked-${Date.now()}`;
  await userWith(name, "viewer", "everything");
  const { path } = await call("POST", `/users/${name}/sign-in-link`);
  world = await openPage({ as: "" });
  const { page } = world;

  await page.goto(site + path);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  expect(page.url()).not.toContain("link=");
  await page.context().clearCookies();
  await page.goto("about:blank");
  await page.goto(site + path);

  await page.getByText("This sign-in link does not work", { exact: false }).waitFor();
});

test("a password signs in", async () => {
  const name = `typed-${Date.now()}`;
  await userWith(name, "viewer", "everything");
  await call("PUT", `/users/${name}/password`, { password: "correct horse battery" });
  world = await openPage({ as: "" });
  const { page } = world;

  await page.goto(`${site}/sign-in`);
  await page.getByText("Password", { exact: true }).click();
  await page.getByLabel("User name").fill(name);
  await page.getByRole("textbox", { name: "Password" }).fill("correct horse battery");
  await page.getByRole("button", { name: "Sign in" }).click();

  await page.getByRole("heading", { name: "Overview" }).waitFor();
});

import { inject } from "vitest";
import { openBrowser, signIn } from "../browser.mjs";

export const server = inject("server");
export const site = inject("console");
/** Whether the server serves the console of these tests itself. */
export const isEmbedded = inject("isEmbedded");
/** The port that agents connect to. */
export const link = inject("link");
export const token = inject("token");
/** A directory whose processes end with the fleet. */
export const home = inject("home");

/** Calls the server as the administrator, past the console. */
export async function call(method, path, body) {
  const answer = await fetch(`${server}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** A user with a token and one binding. */
export async function userWith(name, role, scope) {
  await call("POST", "/users", { name });
  await call("POST", "/bindings", { role, subject: `user:${name}`, scope });
  return (await call("POST", `/users/${name}/tokens`, { ttl_secs: 3600 })).token;
}

/** The session of the administrator, which all tests share. */
const session = inject("session");

/**
 * A page of the administrator, of whoever `as` is the token of, or of nobody if that is empty. A test whose page wrote
 * an error to the browser's console fails when the page is closed.
 */
export async function openPage({ as, ...options } = {}) {
  const { context, close } = await openBrowser({ ...options, cookies: as === undefined ? session : [] });
  const page = await context.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    const isAnswer = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !isAnswer) complaints.push(message.text());
  });
  if (as) await signIn(page, site, as);
  const open = async (path) => {
    await page.goto(site + path);
    await page.locator("h1, .state").first().waitFor();
  };
  const end = async () => {
    await close();
    if (complaints.length > 0) throw new Error(`the browser complained:\n${complaints.join("\n")}`);
  };
  return { page, open, close: end };
}

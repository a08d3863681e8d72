// One fleet and one console for all end-to-end tests.
import { closeBrowser, openSession } from "../browser.mjs";
import { consoleOf } from "../console.mjs";
import { startFleet } from "../fleet.mjs";

export default async function setup({ provide }) {
  const given = process.env.CONSOLE_SERVER;
  const fleet = given
    ? { url: given, token: process.env.CONSOLE_TOKEN ?? "", stop: async () => undefined }
    : await startFleet();
  const web = await consoleOf(fleet.url);
  provide("console", web.url);
  provide("isEmbedded", web.isEmbedded);
  provide("link", fleet.link ?? 0);
  provide("server", fleet.url);
  provide("token", fleet.token);
  provide("home", fleet.dir ?? "");
  provide("session", await openSession(web.url, fleet.token));
  await closeBrowser();
  return async () => {
    web.stop();
    await fleet.stop();
  };
}

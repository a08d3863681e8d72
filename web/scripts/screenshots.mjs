// Every page in both themes and both languages, at 1280 px and on a phone, into web/screenshots.
//
//   PROCTOR_BIN=../target/debug/proctor npm run screenshots
//   CONSOLE_SERVER=http://… CONSOLE_TOKEN=pt_… ONLY=overview,tasks npm run screenshots
import { mkdirSync } from "node:fs";
import { closeBrowser, openBrowser, signIn } from "../test/browser.mjs";
import { consoleOf } from "../test/console.mjs";
import { pagesOf } from "../test/pages.mjs";

const OUT = process.env.OUT ?? "screenshots";
const only = process.env.ONLY?.split(",");
const variants = process.env.VARIANTS?.split(",") ?? [
  "light-en-1280",
  "dark-en-1280",
  "light-zh-1280",
  "dark-zh-1280",
  "light-en-390",
  "dark-zh-390",
];

const fleet = process.env.CONSOLE_SERVER
  ? { url: process.env.CONSOLE_SERVER, token: process.env.CONSOLE_TOKEN ?? "", stop: async () => undefined }
  : await (await import("../test/fleet.mjs")).startFleet();
const web = await consoleOf(fleet.url);
mkdirSync(OUT, { recursive: true });
let problems = 0;
try {
  const pages = await pagesOf(fleet);
  for (const variant of variants) {
    const [theme, language, width] = variant.split("-");
    const { context, close } = await openBrowser({
      theme,
      language,
      width: Number(width),
      height: Number(width) < 600 ? 844 : 800,
    });
    const page = await context.newPage();
    page.on("console", (message) => {
      if (message.type() !== "error" && message.type() !== "warning") return;
      problems += 1;
      console.error(`${variant} ${page.url()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => {
      problems += 1;
      console.error(`${variant} ${page.url()}: ${error}`);
    });
    if (!only || only.includes("sign-in")) {
      await page.goto(`${web.url}/sign-in`);
      await page.waitForTimeout(300);
      await page.screenshot({ path: `${OUT}/sign-in-${variant}.png` });
    }
    await signIn(page, web.url, fleet.token);
    for (const [name, path] of Object.entries(pages)) {
      if (only && !only.includes(name)) continue;
      await page.goto(web.url + path);
      await page.locator("h1, .state").first().waitFor();
      await page
        .locator(".skeleton")
        .first()
        .waitFor({ state: "detached", timeout: 8000 })
        .catch(() => undefined);
      await page.waitForTimeout(700);
      await page.screenshot({ path: `${OUT}/${name}-${variant}.png` });
    }
    await close();
  }
} finally {
  await closeBrowser();
  web.stop();
  await fleet.stop();
}
console.log(
  problems === 0
    ? `screenshots are in ${OUT}`
    : `screenshots are in ${OUT}; ${problems} messages on the browser's console`,
);

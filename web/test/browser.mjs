// Debian's Chromium under playwright-core.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A browser with an empty profile of its own. */
export async function openBrowser({ width = 1280, height = 800, theme = "light", language = "en" } = {}) {
  const profile = mkdtempSync(join(tmpdir(), "proctor-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    args: FLAGS,
    viewport: { width, height },
    reducedMotion: "reduce",
  });
  await setPreferences(context, theme, language);
  return {
    context,
    close: async () => {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

export async function setPreferences(context, theme, language) {
  await context.addInitScript(
    ([chosenTheme, chosenLanguage]) => {
      const key = "proctor.preferences";
      localStorage.setItem(key, JSON.stringify({ theme: chosenTheme, language: chosenLanguage }));
    },
    [theme, language],
  );
}

export async function signIn(page, url, token) {
  await page.goto(`${url}/sign-in`);
  await page.locator("input[type=password]").fill(token);
  await page.locator("button[type=submit]").click();
  await page.waitForURL((address) => !address.pathname.startsWith("/sign-in"));
}

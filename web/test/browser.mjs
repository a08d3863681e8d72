// Debian's Chromium under playwright-core.
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

let browser;

/** One browser for the process; it ends with it. */
function launch() {
  browser ??= chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS });
  return browser;
}

/** A window with an empty profile of its own. */
export async function openBrowser({ width = 1280, height = 800, theme = "light", language = "en" } = {}) {
  const options = { viewport: { width, height }, reducedMotion: "reduce" };
  const context = await (await launch()).newContext(options);
  await setPreferences(context, theme, language);
  return { context, close: () => context.close() };
}

/** For programs that end by themselves. */
export async function closeBrowser() {
  await (await browser)?.close();
  browser = undefined;
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
  // A user opens so many sessions at once, and then one every ten seconds: who is put off tries again.
  const isIn = (address) => !address.pathname.startsWith("/sign-in");
  for (let tries = 1; ; tries += 1) {
    await page.locator("button[type=submit]").click();
    try {
      return await page.waitForURL(isIn, { timeout: 6_000 });
    } catch (error) {
      if (tries === 8) throw error;
    }
  }
}

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
export async function openBrowser(options = {}) {
  const { width = 1280, height = 800, theme = "light", language = "en", cookies = [] } = options;
  const viewport = { width, height };
  const context = await (await launch()).newContext({ viewport, reducedMotion: "reduce" });
  await setPreferences(context, theme, language);
  await context.addCookies(cookies);
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
      // A blank page keeps nothing.
      if (location.origin === "null") return;
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

/** The cookies of a session, for windows of tests that are not about signing in: a user opens few sessions at once. */
export async function openSession(url, token) {
  const { context, close } = await openBrowser();
  try {
    await signIn(await context.newPage(), url, token);
    return await context.cookies();
  } finally {
    await close();
  }
}

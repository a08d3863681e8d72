/** What the viewer chose; kept in this browser. */
export type Language = "en" | "zh";
export type ThemeChoice = "system" | "light" | "dark";

export type Preferences = { language: Language; theme: ThemeChoice; isRailCollapsed: boolean };

const KEY = "proctor.preferences";

export function loadPreferences(): Preferences {
  const preferred = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
  const defaults: Preferences = { language: preferred, theme: "system", isRailCollapsed: false };
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>) };
  } catch {
    return defaults;
  }
}

export function savePreferences(preferences: Preferences) {
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // Private windows may refuse; the choice then lasts as long as the page.
  }
}

export function isDark(choice: ThemeChoice): boolean {
  return choice === "dark" || (choice === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}

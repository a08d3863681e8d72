import { createRoot } from "react-dom/client";
import { App } from "./app/app";
import { loadMessages } from "./messages";
import { isDark, loadPreferences } from "./settings/preferences";
import "./ui/tokens.css";
import "./ui/base.css";

const preferences = loadPreferences();
document.documentElement.dataset.theme = isDark(preferences.theme) ? "dark" : "light";

const root = document.getElementById("root");
if (root) {
  const messages = await loadMessages(preferences.language);
  createRoot(root).render(<App preferences={preferences} messages={messages} />);
}

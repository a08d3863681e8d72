import {
  createContext,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { setApiLanguage } from "@/api/client";
import { loadMessages, type Messages } from "@/messages";
import { isDark, type Preferences, savePreferences } from "./preferences";

type Settings = {
  preferences: Preferences;
  change: (part: Partial<Preferences>) => void;
  isDark: boolean;
  messages: Messages;
};

const Context = createContext<Settings | null>(null);

type Props = {
  initial: Preferences;
  messages: Messages;
  /** What was fetched before is in the other language. */
  onLanguage?: () => void;
  children: ReactNode;
};

export function SettingsProvider({ initial, messages: first, onLanguage, children }: Props) {
  const [preferences, setPreferences] = useState(initial);
  const [messages, setMessages] = useState(first);
  const [dark, setDark] = useState(isDark(initial.theme));
  const fetchedIn = useRef(initial.language);

  const change = useCallback((part: Partial<Preferences>) => {
    setPreferences((now) => {
      const next = { ...now, ...part };
      savePreferences(next);
      return next;
    });
  }, []);

  useEffect(() => {
    setApiLanguage(preferences.language === "zh" ? "zh-CN" : "en");
    if (fetchedIn.current !== preferences.language) onLanguage?.();
    fetchedIn.current = preferences.language;
    document.documentElement.lang = preferences.language === "zh" ? "zh-CN" : "en";
    let isCurrent = true;
    void loadMessages(preferences.language).then((loaded) => isCurrent && setMessages(loaded));
    return () => {
      isCurrent = false;
    };
  }, [preferences.language, onLanguage]);

  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      const next = isDark(preferences.theme);
      document.documentElement.dataset.theme = next ? "dark" : "light";
      setDark(next);
    };
    apply();
    media.addEventListener("change", apply);
    return () => media.removeEventListener("change", apply);
  }, [preferences.theme]);

  const value = useMemo(
    () => ({ preferences, change, isDark: dark, messages }),
    [preferences, change, dark, messages],
  );
  return <Context value={value}>{children}</Context>;
}

export function useSettings(): Settings {
  const settings = useContext(Context);
  if (!settings) throw new Error("useSettings outside of SettingsProvider");
  return settings;
}

export function useMessages(): Messages {
  return useSettings().messages;
}

import { QueryClientProvider } from "@tanstack/react-query";
import { App as AntApp, ConfigProvider } from "antd";
import { useEffect, useState } from "react";
import { RouterProvider } from "react-router";
import type { Messages } from "@/messages";
import { SettingsProvider, useSettings } from "@/settings/context";
import type { Preferences } from "@/settings/preferences";
import { themeConfig } from "@/ui/theme";
import { queryClient } from "./query-client";
import { router } from "./routes";

type AntLocale = Parameters<typeof ConfigProvider>[0]["locale"];

const fetchAgain = () => void queryClient.invalidateQueries();

export function App({ preferences, messages }: { preferences: Preferences; messages: Messages }) {
  return (
    <SettingsProvider initial={preferences} messages={messages} onLanguage={fetchAgain}>
      <QueryClientProvider client={queryClient}>
        <Themed />
      </QueryClientProvider>
    </SettingsProvider>
  );
}

function Themed() {
  const { isDark, preferences } = useSettings();
  const [locale, setLocale] = useState<AntLocale>();
  useEffect(() => {
    if (preferences.language === "en") setLocale(undefined);
    else void import("antd/locale/zh_CN").then((loaded) => setLocale(loaded.default));
  }, [preferences.language]);
  return (
    <ConfigProvider theme={themeConfig(isDark)} locale={locale} button={{ autoInsertSpace: false }}>
      <AntApp component={false}>
        <RouterProvider router={router} />
      </AntApp>
    </ConfigProvider>
  );
}

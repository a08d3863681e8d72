import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import { App } from "antd";
import type { ReactElement } from "react";
import { createMemoryRouter, RouterProvider } from "react-router";
import type { OperationClass } from "@/api/access";
import type { Session } from "@/api/session";
import { en } from "@/messages/en";
import { zh } from "@/messages/zh";
import { SettingsProvider } from "@/settings/context";
import type { Language } from "@/settings/preferences";
import { SessionProvider } from "@/ui/rights";

type Options = {
  path?: string;
  /** Where parts of the path are parameters. */
  route?: string;
  language?: Language;
  rights?: Partial<Record<OperationClass, string[]>>;
};

export function sessionWith(rights: NonNullable<Options["rights"]>): Session {
  const allowed = Object.entries(rights).map(([kind, scopes]) => ({ class: kind, scopes }));
  return { user: "ana", allowed, csrf: "c", expires_at: 0 };
}

const everything = ["everything"];
const all = {
  read: everything,
  operate: everything,
  register: everything,
  limits: everything,
  admin: everything,
};

/** Renders as the app does, signed in, at an address. */
export function renderPage(
  element: ReactElement,
  { path = "/", route = path.split("?")[0] ?? "/", language = "en", rights = all }: Options = {},
) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const router = createMemoryRouter(
    [
      { path: route, element },
      { path: "*", element: <p>elsewhere</p> },
    ],
    { initialEntries: [path] },
  );
  const messages = language === "zh" ? zh : en;
  const view = render(
    <SettingsProvider initial={{ language, theme: "light", isRailCollapsed: false }} messages={messages}>
      <QueryClientProvider client={client}>
        <App component={false}>
          <SessionProvider value={sessionWith(rights)}>
            <RouterProvider router={router} />
          </SessionProvider>
        </App>
      </QueryClientProvider>
    </SettingsProvider>,
  );
  return { ...view, router, client };
}

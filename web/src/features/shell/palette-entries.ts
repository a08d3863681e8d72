import { useQuery } from "@tanstack/react-query";
import { searchQuery } from "@/api/overview";
import { operations } from "@/api/tasks";
import { useMessages, useSettings } from "@/settings/context";
import { hostPath, processPath, shortTaskId, taskPath } from "@/ui/paths";
import { hasRight, useSession } from "@/ui/rights";
import { linkTo } from "@/ui/url-state";
import { useSettled } from "@/ui/use-settled";
import { adminItems, mainItems } from "./navigation";

export type Entry = {
  key: string;
  group: string;
  label: string;
  hint?: string;
  to?: string;
  run?: () => void;
};

const SETTLE_MS = 150;
const RUNS_SHOWN = 8;

export function usePaletteEntries(text: string): Entry[] {
  const { shell, terms } = useMessages();
  const { isDark, preferences, change } = useSettings();
  const session = useSession();
  const wanted = text.trim().toLowerCase();
  const words = wanted.split(/\s+/);
  // "restart nginx" looks for nginx; what is to be done is matched here.
  const verbs = operations.filter((operation) =>
    [operation, terms.operation[operation]].some((name) => name.toLowerCase() === words[0]),
  );
  const isRun = words.length > 1 && verbs.length > 0;
  const sought = useSettled(isRun ? words.slice(1).join(" ") : wanted, SETTLE_MS);
  const found = useQuery(searchQuery(sought)).data;
  const matches = (...parts: string[]) => parts.some((part) => part.toLowerCase().includes(wanted));

  const pages = [...mainItems, ...adminItems].filter((item) => !item.need || hasRight(session, item.need));
  const goTo: Entry[] = [
    ...pages.map((item) => ({ key: item.to, label: shell.nav[item.key], to: item.to })),
    { key: "operate", label: shell.nav.operate, to: "/operate" },
    { key: "register", label: shell.nav.register, to: "/register" },
  ]
    .filter((entry) => matches(entry.label, entry.to))
    .map((entry) => ({ ...entry, group: shell.palette.goTo }));
  const settings: Entry[] = [
    {
      key: "theme",
      label: shell.palette.toggleTheme,
      run: () => change({ theme: isDark ? "light" : "dark" }),
    },
    {
      key: "language",
      label: shell.palette.toggleLanguage,
      run: () => change({ language: preferences.language === "en" ? "zh" : "en" }),
    },
  ]
    .filter((entry) => matches(entry.label))
    .map((entry) => ({ ...entry, group: shell.palette.preferences }));
  if (!wanted) return [...goTo, ...settings];

  const names = found?.processes ?? [];
  const runEntries = isRun
    ? names
        .flatMap((name) =>
          verbs.map((operation) => ({
            key: `run ${operation} ${name}`,
            group: shell.palette.run,
            label: shell.palette.runOperation(terms.operation[operation], name),
            to: linkTo("/operate", { op: operation, process: name }),
          })),
        )
        .slice(0, RUNS_SHOWN)
    : [];
  const processEntries = names.map((name) => ({
    key: `process ${name}`,
    group: shell.palette.processes,
    label: name,
    to: processPath(name),
  }));
  const namespaceEntries = (found?.namespaces ?? []).map((namespace) => ({
    key: `namespace ${namespace}`,
    group: shell.palette.namespaces,
    label: namespace,
    to: linkTo("/processes", { namespace }),
  }));
  const hostEntries = (found?.hosts ?? []).map((host) => ({
    key: host.host,
    group: shell.palette.hosts,
    label: host.host,
    hint: host.online ? host.hostname : `${host.hostname} · ${terms.away}`,
    to: hostPath(host.host),
  }));
  const taskEntries = (found?.tasks ?? []).map((task) => ({
    key: task.task_id,
    group: shell.palette.tasks,
    label: `${(task.operations ?? []).map((operation) => terms.operation[operation]).join(", ")} ${shortTaskId(task.task_id)}`,
    hint: task.user,
    to: taskPath(task.task_id),
  }));
  return [
    ...runEntries,
    ...processEntries,
    ...hostEntries,
    ...namespaceEntries,
    ...taskEntries,
    ...goTo,
    ...settings,
  ];
}

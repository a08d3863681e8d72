import { useQuery } from "@tanstack/react-query";
import { useDeferredValue } from "react";
import { allHostsQuery } from "@/api/hosts";
import { fetchProcesses } from "@/api/processes";
import { fetchTasks, operations } from "@/api/tasks";
import { useMessages, useSettings } from "@/settings/context";
import { hostPath, processPath, shortTaskId, taskPath } from "@/ui/paths";
import { hasRight, useSession } from "@/ui/rights";
import { linkTo } from "@/ui/url-state";
import { adminItems, mainItems } from "./navigation";

export type Entry = {
  key: string;
  group: string;
  label: string;
  hint?: string;
  to?: string;
  run?: () => void;
};

const SHOWN = 8;

/** Names of processes that are known here; the server has no search by part of a name yet. */
const processNamesQuery = {
  queryKey: ["process-names"],
  queryFn: async () => {
    const page = await fetchProcesses({ sort: "name" }, null, 1000);
    return [...new Set(page.rows.map((row) => row.process))];
  },
  staleTime: 30_000,
};

const recentTasksQuery = {
  queryKey: ["tasks", "recent"],
  queryFn: async () => (await fetchTasks({}, null, 50)).rows,
  staleTime: 5000,
};

export function usePaletteEntries(text: string): Entry[] {
  const { shell, terms } = useMessages();
  const { isDark, preferences, change } = useSettings();
  const session = useSession();
  const wanted = useDeferredValue(text.trim().toLowerCase());
  const names = useQuery(processNamesQuery).data ?? [];
  const hosts = useQuery(allHostsQuery).data?.rows ?? [];
  const tasks = useQuery(recentTasksQuery).data ?? [];
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

  const found = names.filter((name) => matches(name)).slice(0, SHOWN);
  const processEntries = found.map((name) => ({
    key: `process ${name}`,
    group: shell.palette.processes,
    label: name,
    to: processPath(name),
  }));
  const words = wanted.split(/\s+/);
  const runnable = names.filter((name) => name.toLowerCase().includes(words.at(-1) ?? "")).slice(0, 3);
  const runEntries = runnable
    .flatMap((name) =>
      operations.map((operation) => ({
        key: `run ${operation} ${name}`,
        group: shell.palette.run,
        label: shell.palette.runOperation(terms.operation[operation], name),
        to: linkTo("/operate", { op: operation, process: name }),
        text: `${operation} ${terms.operation[operation]} ${name}`.toLowerCase(),
      })),
    )
    .filter((entry) => words.length > 1 && words.every((word) => entry.text.includes(word)))
    .slice(0, SHOWN);
  const hostEntries = hosts
    .filter((host) => matches(host.host, host.facts?.hostname ?? "", host.agent))
    .slice(0, SHOWN)
    .map((host) => ({
      key: host.host,
      group: shell.palette.hosts,
      label: host.host,
      hint: host.facts?.hostname,
      to: hostPath(host.host),
    }));
  const taskEntries = tasks
    .filter((task) => matches(task.task_id, task.user))
    .slice(0, SHOWN)
    .map((task) => ({
      key: task.task_id,
      group: shell.palette.tasks,
      label: `${(task.operations ?? []).map((operation) => terms.operation[operation]).join(", ")} ${shortTaskId(task.task_id)}`,
      hint: task.user,
      to: taskPath(task.task_id),
    }));
  return [...processEntries, ...hostEntries, ...runEntries, ...taskEntries, ...goTo, ...settings];
}

import type { ComponentType } from "react";
import { createBrowserRouter, type RouteObject } from "react-router";
import { Shell } from "@/features/shell/shell";
import { Skeleton } from "@/ui/states";
import { RouteFailure } from "./route-failure";

type Module = { Component: ComponentType };

function page(path: string, load: () => Promise<Module>): RouteObject {
  return { path, lazy: load, errorElement: <RouteFailure /> };
}

const pages: RouteObject[] = [
  { index: true, lazy: () => import("@/features/overview/overview-page"), errorElement: <RouteFailure /> },
  page("processes", () => import("@/features/processes/processes-page")),
  page("processes/:namespace/:name", () => import("@/features/process/process-page")),
  page("register", () => import("@/features/register/register-page")),
  page("operate", () => import("@/features/operate/operate-page")),
  page("hosts", () => import("@/features/hosts/hosts-page")),
  page("hosts/:host", () => import("@/features/hosts/host-page")),
  page("pools", () => import("@/features/pools/pools-page")),
  page("pools/:host/:namespace/:id", () => import("@/features/pools/pool-page")),
  page("tasks", () => import("@/features/tasks/tasks-page")),
  page("tasks/:id", () => import("@/features/tasks/task-page")),
  page("events", () => import("@/features/events/events-page")),
  page("audit", () => import("@/features/audit/audit-page")),
  page("enrol", () => import("@/features/enrol/enrol-page")),
  page("relays", () => import("@/features/relays/relays-page")),
  page("upgrades", () => import("@/features/upgrades/upgrades-page")),
  page("upgrades/:id", () => import("@/features/upgrades/upgrade-page")),
  page("authority", () => import("@/features/authority/authority-page")),
  page("access", () => import("@/features/access/access-page")),
  page("webhooks", () => import("@/features/webhooks/webhooks-page")),
  page("settings", () => import("@/features/settings/settings-page")),
  page("*", () => import("./not-found-page")),
];

export const router = createBrowserRouter([
  {
    ...page("/sign-in", () => import("@/features/sign-in/sign-in-page")),
    hydrateFallbackElement: <Skeleton />,
  },
  { path: "/", element: <Shell />, hydrateFallbackElement: <Skeleton lines={8} />, children: pages },
]);

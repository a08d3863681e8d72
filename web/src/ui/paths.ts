import { splitProcess } from "@/api/processes";

/** Addresses of the console's pages. */
export function processPath(process: string, tab?: string): string {
  const { namespace, name } = splitProcess(process);
  const path = `/processes/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  return tab ? `${path}?tab=${tab}` : path;
}

export function hostPath(host: string): string {
  return `/hosts/${encodeURIComponent(host)}`;
}

export function taskPath(id: string): string {
  return `/tasks/${encodeURIComponent(id)}`;
}

export function upgradePath(id: string): string {
  return `/upgrades/${encodeURIComponent(id)}`;
}

export function poolPath(host: string, namespace: string, id: string): string {
  return `/pools/${encodeURIComponent(host)}/${encodeURIComponent(namespace)}/${encodeURIComponent(id)}`;
}

/** A task id without the prefix that all of them have. */
export function shortTaskId(id: string): string {
  return id.replace(/^GSETASK:/, "").slice(-10);
}

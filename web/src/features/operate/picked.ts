/** Rows that were picked in a list, as `PROCESS HOST`; kept for this tab under a short name. */
const PREFIX = "proctor.picked.";

export function keepPicked(rows: string[]): string {
  const name = Date.now().toString(36);
  try {
    sessionStorage.setItem(PREFIX + name, JSON.stringify(rows));
  } catch {
    memory.set(name, rows);
  }
  return name;
}

const memory = new Map<string, string[]>();

export function loadPicked(name: string): string[] {
  const held = memory.get(name);
  if (held) return held;
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + name) ?? "[]") as string[];
  } catch {
    return [];
  }
}

/** Hosts by process. */
export function groupPicked(rows: string[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const row of rows) {
    const space = row.lastIndexOf(" ");
    const process = row.slice(0, space);
    const hosts = groups.get(process);
    if (hosts) hosts.push(row.slice(space + 1));
    else groups.set(process, [row.slice(space + 1)]);
  }
  return groups;
}

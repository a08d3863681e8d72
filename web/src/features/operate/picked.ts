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

/** The rows as an operation takes them. */
export function pickedTargets(rows: string[]): { process: string; host: string }[] {
  return rows.map((row) => {
    const space = row.lastIndexOf(" ");
    return { process: row.slice(0, space), host: row.slice(space + 1) };
  });
}

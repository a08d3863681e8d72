/** Rows that were picked in a list, as `PROCESS HOST`. */
const PREFIX = "proctor.picked.";

/** Addresses longer than this are cut by some programs that they are pasted into. */
const LINKED_MAX = 50;
const LINKED_CHARS_MAX = 4000;

/**
 * How an address names picked rows: a few by themselves, so that it is the same for a colleague; many by a short name,
 * under which this tab keeps them.
 */
export function linkPicked(rows: string[]): URLSearchParams {
  const query = new URLSearchParams(rows.slice(0, LINKED_MAX + 1).map((row) => ["target", row]));
  const isShort = rows.length <= LINKED_MAX && query.toString().length <= LINKED_CHARS_MAX;
  return isShort ? query : new URLSearchParams({ picked: keepPicked(rows) });
}

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

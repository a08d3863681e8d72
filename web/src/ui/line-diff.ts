export type DiffLine = { left: string | null; right: string | null };

/** Two texts side by side, line by line, by their longest common subsequence. */
export function lineDiff(left: string[], right: string[]): DiffLine[] {
  const width = right.length + 1;
  const lengths = new Uint32Array((left.length + 1) * width);
  const at = (row: number, column: number) => lengths[row * width + column] ?? 0;
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      lengths[row * width + column] =
        left[row] === right[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: DiffLine[] = [];
  let row = 0;
  let column = 0;
  let removed: string[] = [];
  let added: string[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) {
      lines.push({ left: removed[index] ?? null, right: added[index] ?? null });
    }
    removed = [];
    added = [];
  };
  while (row < left.length || column < right.length) {
    const a = left[row];
    const b = right[column];
    if (a !== undefined && a === b) {
      flush();
      lines.push({ left: a, right: a });
      row += 1;
      column += 1;
    } else if (b === undefined || (a !== undefined && at(row + 1, column) >= at(row, column + 1))) {
      removed.push(a ?? "");
      row += 1;
    } else {
      added.push(b);
      column += 1;
    }
  }
  flush();
  return lines;
}

/** JSON with sorted keys, so that equal values have equal lines. */
export function jsonLines(value: unknown): string[] {
  return JSON.stringify(sorted(value), null, 2).split("\n");
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, each]) => [key, sorted(each)]));
}

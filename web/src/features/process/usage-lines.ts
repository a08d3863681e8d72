import type { Usage } from "@/api/processes";

type Line = (number | null)[];

/** One value for each of `times`, null where nothing is known. */
export type Drawn = {
  times: number[];
  cpu: Line;
  cpuMax: Line;
  memory: Line;
  memoryMax: Line;
  /** When the process was started again, in Unix seconds. */
  restarts: number[];
};

const seconds = { "1h": 3600, "7d": 7 * 86_400 };
/** The next point may be this many steps away before it counts as a gap. */
const GAP_STEPS = 2;

/** The whole range as lines with gaps; nothing where nothing was recorded. */
export function draw(usage: Usage): Drawn | undefined {
  const { points, step } = usage;
  const last = points.at(-1);
  if (!last) return undefined;
  const drawn: Drawn = { times: [], cpu: [], cpuMax: [], memory: [], memoryMax: [], restarts: [] };
  const add = (at: number, values: [number, number, number, number] | null) => {
    drawn.times.push(at);
    drawn.cpu.push(values?.[0] ?? null);
    drawn.cpuMax.push(values?.[1] ?? null);
    drawn.memory.push(values?.[2] ?? null);
    drawn.memoryMax.push(values?.[3] ?? null);
  };
  // The axis shows the range that was asked for, however little of it is known.
  const begin = last.at + step - seconds[usage.range];
  let before = begin;
  add(begin - 1, null);
  for (const point of points) {
    if (point.at < begin) continue;
    if (point.at - before > GAP_STEPS * step || (point.restarted && point.at > before)) {
      add(Math.max(point.at - 1, (before + point.at) / 2), null);
    }
    if (point.restarted) drawn.restarts.push(point.at);
    add(point.at, [point.cpu, point.cpu_max, point.memory, point.memory_max]);
    before = point.at;
  }
  return drawn;
}

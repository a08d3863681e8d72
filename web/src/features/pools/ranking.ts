import type { Event } from "@/api/events";
import { splitProcess } from "@/api/processes";
import type { Pool } from "@/api/server";

export type Ranked = {
  process: string;
  usage: number;
  /** Its own limit; null where it has none. */
  limit: number | null;
  /** What its usage is divided by; null where the score is the usage itself. */
  divisor: number | null;
  score: number;
};
export type Resource = "cpu" | "memory";
export type OwnLimits = ReadonlyMap<string, { cpu?: number | null; memory?: number | null }>;

/** The members in the order in which the agent would end them, by the pool's formula. */
export function rank(pool: Pool, resource: Resource, own: OwnLimits): Ranked[] {
  const weight = resource === "cpu" ? pool.cpu_weight : pool.memory_weight;
  const members = pool.usage?.members ?? [];
  const ranked = members.map((member) => {
    const usage = resource === "cpu" ? member.cpu_percent : member.memory_percent;
    const limit = own.get(member.process)?.[resource] ?? null;
    const divisor = weight === "usage" ? null : limit || pool[resource] || 1;
    return {
      process: member.process,
      usage,
      limit,
      divisor,
      score: divisor === null ? usage : usage / divisor,
    };
  });
  return ranked.sort((a, b) => b.score - a.score || (a.process < b.process ? -1 : 1));
}

/** How much of a resource the members use together. */
export function usageOf(pool: Pool, resource: Resource): number {
  return (resource === "cpu" ? pool.usage?.cpu_percent : pool.usage?.memory_percent) ?? 0;
}

/** An eviction names its process, a warning the namespace; what says neither is of an older agent. */
export function isOfPool(event: Event, pool: Pool): boolean {
  const { details, process } = event;
  if (details?.pool !== pool.id && details?.pool_id !== pool.id) return false;
  const namespace = process ? splitProcess(process).namespace : details.namespace;
  return namespace === undefined || namespace === pool.namespace;
}

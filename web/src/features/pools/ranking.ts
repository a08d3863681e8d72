import type { Pool } from "@/api/server";

export type Ranked = { process: string; usage: number; limit: number | null; score: number };
export type Resource = "cpu" | "memory";
export type OwnLimits = ReadonlyMap<string, { cpu?: number | null; memory?: number | null }>;

/** The members in the order in which the agent would end them, by the pool's formula. */
export function rank(pool: Pool, resource: Resource, own: OwnLimits): Ranked[] {
  const weight = resource === "cpu" ? pool.cpu_weight : pool.memory_weight;
  const members = pool.usage?.members ?? [];
  const ranked = members.map((member) => {
    const usage = resource === "cpu" ? member.cpu_percent : member.memory_percent;
    const limit = own.get(member.process)?.[resource] ?? null;
    const score = weight === "usage" ? usage : usage / (limit || pool[resource] || 1);
    return { process: member.process, usage, limit, score };
  });
  return ranked.sort((a, b) => b.score - a.score || (a.process < b.process ? -1 : 1));
}

import type { Pool } from "@/api/server";
import { useMessages } from "@/settings/context";
import { formatPercent } from "@/ui/format";
import { type Resource, usageOf } from "./ranking";
import "./pools.css";

const COLOURS = 6;

type Part = { process: string; usage: number };
type Props = { label: string; parts: Part[]; used: number; limit: number; isSmall?: boolean };

/** The members stacked against the limit; beyond it, the bar goes on and the limit stays as a line. */
export function PoolBar({ label, parts, used, limit, isSmall }: Props) {
  const { pools: text } = useMessages();
  const full = Math.max(limit, used) || 1;
  const share = (value: number) => `${(100 * value) / full}%`;
  const present = parts.filter((part) => part.usage > 0);
  const told = present.map((part) => `${part.process}: ${formatPercent(part.usage)}`).join("\n");
  const sum = text.usageOf(formatPercent(used), formatPercent(limit));
  return (
    <span
      className={isSmall ? "pool-bar is-small" : "pool-bar"}
      role="img"
      aria-label={`${label}: ${sum}`}
      title={told ? `${sum}\n${told}` : sum}
    >
      {present.map((part, index) => (
        <span
          key={part.process}
          className={`pool-part pool-part-${index % COLOURS}`}
          style={{ width: share(part.usage) }}
        />
      ))}
      {used > limit && <span className="pool-limit" style={{ left: share(limit) }} />}
    </span>
  );
}

/** The colour of a member in the bar of the same order. */
export function PoolKey({ index }: { index: number }) {
  return <span className={`pool-key pool-part-${index % COLOURS}`} aria-hidden="true" />;
}

/** The members of a pool against its limit, with the figures, in one line. */
export function PoolUsage({ pool, resource }: { pool: Pool; resource: Resource }) {
  const { pools: text } = useMessages();
  const used = usageOf(pool, resource);
  const parts = (pool.usage?.members ?? []).map((member) => ({
    process: member.process,
    usage: resource === "cpu" ? member.cpu_percent : member.memory_percent,
  }));
  const limit = pool[resource];
  return (
    <span className="row pool-cell">
      <PoolBar label={text[resource]} parts={parts} used={used} limit={limit} isSmall />
      <span className={used > limit ? "tone-failed" : undefined}>
        {text.usageOf(formatPercent(used), formatPercent(limit))}
      </span>
    </span>
  );
}

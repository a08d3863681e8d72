import { Link } from "react-router";
import type { Event } from "@/api/events";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { useNow } from "@/ui/time";
import type { Overview } from "./use-overview";

type Stat = {
  label: string;
  value: number;
  isMore?: boolean;
  to: string;
  types: string[];
  tone: "failed" | "warning";
};

/** Four numbers; grey at zero, so that the one that is not stands out. */
export function Stats({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const now = useNow();
  const stats: Stat[] = [
    {
      label: text.stat.away,
      value: data.hosts.filter((host) => !host.online && !host.revoked_at).length,
      to: "/hosts?state=away",
      types: ["agent_offline"],
      tone: "failed",
    },
    {
      label: text.stat.failed,
      value: data.failed.length,
      isMore: data.isMore,
      to: "/processes?phase=failed",
      types: ["cancel_restart", "restart_failed"],
      tone: "failed",
    },
    {
      label: text.stat.crashLooping,
      value: data.looping.length,
      to: "/processes?sort=restarts",
      types: ["restart_succeeded"],
      tone: "failed",
    },
    {
      label: text.stat.evicted,
      value: data.waiting.length,
      isMore: data.isMore,
      to: "/processes?phase=waiting",
      types: ["limit_exceeded", "pool_limit_exceeded"],
      tone: "warning",
    },
  ];
  return (
    <div className="stats">
      {stats.map((stat) => (
        <Link
          key={stat.label}
          to={stat.to}
          className={`panel stat${stat.value > 0 ? ` tone-${stat.tone}` : ""}`}
        >
          <span className="stat-value">
            {number(stat.value)}
            {stat.isMore ? "+" : ""}
          </span>
          <span className="stat-label">{stat.label}</span>
          <span className="muted stat-change">
            <Change count={recent(data.events, stat.types, now)} />
          </span>
        </Link>
      ))}
    </div>
  );
}

function Change({ count }: { count: number }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  return count === 0 ? text.quietHour : text.inLastHour(number(count));
}

function recent(events: Event[], types: string[], nowMs: number): number {
  return events.filter((event) => types.includes(event.type) && nowMs - event.at_ms < 3_600_000).length;
}

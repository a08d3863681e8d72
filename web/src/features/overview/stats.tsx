import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { type Overview, sumSeries, troubleQuery, troubleTypes } from "@/api/overview";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { processesPath } from "./paths";

type Stat = {
  label: string;
  value: number;
  of: string;
  to: string;
  /** The same at an earlier moment. */
  before: number | undefined;
  trouble: keyof typeof troubleTypes;
  tone: "failed" | "warning";
};

/** Four numbers; grey at zero, so that the one that is not stands out. */
export function Stats({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const hour = useQuery(troubleQuery).data?.hour;
  const earlier = data.earlier;
  const minutes = earlier ? Math.round((data.at_ms - earlier.at_ms) / 60_000) : 0;
  const ofHosts = text.ofHosts(number(data.hosts.online + data.hosts.away + (data.hosts.unreachable ?? 0)));
  const ofProcesses = text.ofProcesses(number(data.processes.total - (data.processes.cordoned ?? 0)));
  const stats: Stat[] = [
    {
      label: text.stat.away,
      value: data.hosts.away,
      of: ofHosts,
      to: "/hosts?state=away",
      before: earlier?.away,
      trouble: "offline",
      tone: "warning",
    },
    {
      label: text.stat.failed,
      value: data.processes.phases.failed,
      of: ofProcesses,
      to: processesPath(data, { phase: "failed" }),
      before: earlier?.failed,
      trouble: "failures",
      tone: "failed",
    },
    {
      label: text.stat.crashLooping,
      value: data.processes.crash_looping,
      of: ofProcesses,
      to: processesPath(data, { trouble: "crash_looping" }),
      before: earlier?.crash_looping,
      trouble: "restarts",
      tone: "failed",
    },
    {
      label: text.stat.evicted,
      value: data.processes.evicted,
      of: ofProcesses,
      to: processesPath(data, { trouble: "evicted" }),
      before: earlier?.evicted,
      trouble: "evictions",
      tone: "warning",
    },
  ];
  return (
    <div className="stats">
      {stats.map((stat) => {
        const recent = hour && sumSeries(hour, troubleTypes[stat.trouble], 1)[0];
        return (
          <Link
            key={stat.label}
            to={stat.to}
            className={`panel stat${stat.value > 0 ? ` tone-${stat.tone}` : ""}`}
          >
            <span className="stat-value">{number(stat.value)}</span>
            <span className="stat-label">
              {stat.label} <span className="muted">{stat.of}</span>
            </span>
            <span
              className="muted stat-change"
              title={recent === undefined ? undefined : text.events[stat.trouble](recent, number(recent))}
            >
              {stat.before === undefined ? "\u00a0" : text.change(stat.value - stat.before, number, minutes)}
            </span>
          </Link>
        );
      })}
    </div>
  );
}

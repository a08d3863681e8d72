import type { Process } from "@/api/processes";
import type { Messages } from "@/messages";
import { formatSpan } from "@/ui/format";
import { hostPath, processPath } from "@/ui/paths";
import type { Tone } from "@/ui/phase";
import type { Overview } from "./use-overview";

export type Concern = {
  key: string;
  tone: Tone;
  kind: keyof Messages["overview"]["kind"];
  what: string;
  to: string;
  count: number;
  reason: string;
  /** Unix seconds; null where it is not known. */
  since: number | null;
};

const WEEK_SECS = 7 * 86_400;
const CLOCK_MAX_MS = 30_000;

/** What is wrong, the worst first; the same trouble on many hosts is one line. */
export function concernsOf(data: Overview, nowSecs: number, messages: Messages): Concern[] {
  const { overview: text, common } = messages;
  const failed = group(data.failed, "failed", "failed");
  const waiting = group(data.waiting, "waiting", "warning");
  const looping = group(data.looping, "crash_looping", "failed").map((concern) => {
    const restarts = data.looping.filter((row) => row.process === concern.what).map((row) => row.restarts);
    return { ...concern, reason: concern.reason || text.restarts(String(Math.max(...restarts))) };
  });
  const away = data.hosts
    .filter((host) => !host.online && !host.revoked_at)
    .sort((a, b) => b.presence_changed_at - a.presence_changed_at);
  const rest: Concern[] = [];
  const first = away[0];
  if (first) {
    rest.push({
      key: "away",
      tone: "failed",
      kind: "host_away",
      what: away.length === 1 ? first.host : text.hostsAway(String(away.length)),
      to: away.length === 1 ? hostPath(first.host) : "/hosts?state=away",
      count: away.length,
      reason:
        away.length === 1
          ? (first.facts?.hostname ?? "")
          : away
              .slice(0, 5)
              .map((host) => host.host)
              .join(", "),
      since: first.presence_changed_at,
    });
  }
  for (const host of data.hosts) {
    const left = (host.certificate_expires_at ?? Number.POSITIVE_INFINITY) - nowSecs;
    const off = Math.abs(host.clock_ahead_ms ?? 0);
    const base = {
      tone: "warning" as const,
      what: host.host,
      to: hostPath(host.host),
      count: 1,
      since: null,
    };
    if (host.online && left < WEEK_SECS) {
      rest.push({
        ...base,
        key: `certificate ${host.host}`,
        kind: "certificate",
        reason: common.in(formatSpan(left, common)),
      });
    }
    if (host.online && off > CLOCK_MAX_MS) {
      rest.push({
        ...base,
        key: `clock ${host.host}`,
        kind: "clock",
        reason: formatSpan(off / 1000, common),
      });
    }
  }
  const rank: Tone[] = ["failed", "warning", "changing", "idle", "running"];
  return [...failed, ...looping, ...rest, ...waiting]
    .sort((a, b) => rank.indexOf(a.tone) - rank.indexOf(b.tone) || b.count - a.count)
    .slice(0, 50);
}

function group(rows: Process[], kind: Concern["kind"], tone: Tone): Concern[] {
  const groups = new Map<string, Process[]>();
  for (const row of rows) {
    const held = groups.get(row.process);
    if (held) held.push(row);
    else groups.set(row.process, [row]);
  }
  return [...groups].map(([process, members]) => ({
    key: `${kind} ${process}`,
    tone,
    kind,
    what: process,
    to: processPath(process),
    count: members.length,
    reason: members.find((member) => member.reason)?.reason ?? "",
    since: null,
  }));
}

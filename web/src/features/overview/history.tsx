import { lazy, Suspense, useMemo } from "react";
import type { Event } from "@/api/events";
import { useMessages } from "@/settings/context";
import { Legend } from "@/ui/cell-grid";
import type { Series } from "@/ui/chart";
import { formatExact } from "@/ui/format";
import { Panel } from "@/ui/page";
import { useNow } from "@/ui/time";

const Chart = lazy(() => import("@/ui/chart").then((module) => ({ default: module.Chart })));

const HOUR_SECS = 3600;
const HOURS = 24;
const kinds = [
  { key: "restarts", types: ["restart_succeeded"], tone: "changing" },
  { key: "evictions", types: ["limit_exceeded", "pool_limit_exceeded"], tone: "warning" },
  { key: "failures", types: ["restart_failed", "cancel_restart"], tone: "failed" },
  { key: "offline", types: ["agent_offline"], tone: "idle" },
] as const;

/** How many events of each kind fell into each of the last 24 hours. */
export function countByHour(events: Event[], nowMs: number): { times: number[]; values: number[][] } {
  const last = Math.floor(nowMs / 1000 / HOUR_SECS) * HOUR_SECS;
  const times = Array.from({ length: HOURS }, (_, index) => last - (HOURS - 1 - index) * HOUR_SECS);
  const values = kinds.map((kind) => {
    const counts = times.map(() => 0);
    for (const event of events) {
      const index = HOURS - 1 - Math.floor((last + HOUR_SECS - event.at_ms / 1000) / HOUR_SECS);
      const isOfKind = (kind.types as readonly string[]).includes(event.type);
      if (isOfKind && counts[index] !== undefined) counts[index] += 1;
    }
    return counts;
  });
  return { times, values };
}

export function History({ events }: { events: Event[] }) {
  const { overview: text, common } = useMessages();
  const now = useNow();
  const hour = Math.floor(now / 60_000);
  const { times, values } = useMemo(() => countByHour(events, hour * 60_000), [events, hour]);
  // uPlot draws later series over earlier ones, so the tallest of the stack comes first.
  const [drawn, series] = useMemo(() => {
    const sums = values.map((_, index) =>
      times.map((__, at) => values.slice(0, index + 1).reduce((sum, list) => sum + (list[at] ?? 0), 0)),
    );
    const list: Series[] = kinds.map((kind) => ({
      label: text.series[kind.key],
      colour: `--cell-${kind.tone}`,
      isBar: true,
    }));
    return [sums.reverse(), list.reverse()];
  }, [values, times, text]);
  const oldest = events[0];
  const isCut =
    events.length >= 1000 && oldest !== undefined && now - oldest.at_ms < HOURS * HOUR_SECS * 1000;
  const isQuiet = values.every((list) => list.every((count) => count === 0));
  return (
    <Panel title={text.happened}>
      <div className="panel-body">
        {!isQuiet && <Legend items={kinds.map((kind) => [kind.tone, text.series[kind.key]])} />}
        {isQuiet ? (
          <p className="muted overview-quiet">{text.quiet}</p>
        ) : (
          <Suspense fallback={<div style={{ height: 180 }} />}>
            <Chart label={text.happened} times={times} values={drawn} series={series} />
          </Suspense>
        )}
        {isCut && (
          <p className="muted overview-note">
            {text.reaches(formatExact(oldest.at_ms, common.locale).split("\n")[0] ?? "")}
          </p>
        )}
      </div>
    </Panel>
  );
}

import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { type Histogram, sumSeries, troubleQuery, troubleTypes } from "@/api/overview";
import { useMessages } from "@/settings/context";
import { Legend } from "@/ui/cell-grid";
import type { Series } from "@/ui/chart";
import { Freshness } from "@/ui/freshness";
import { Panel } from "@/ui/page";
import { Failure } from "@/ui/states";

const Chart = lazy(() => import("@/ui/chart").then((module) => ({ default: module.Chart })));

const CHART_PX = 180;
const kinds = [
  { key: "restarts", tone: "changing" },
  { key: "evictions", tone: "warning" },
  { key: "failures", tone: "failed" },
  { key: "offline", tone: "idle" },
] as const;

/** The middle of each step, and for each kind the height at which its part of the stack ends. */
export function stack(day: Histogram, steps: number): { times: number[]; tops: number[][] } {
  const times = Array.from({ length: steps }, (_, index) => day.from + (index + 0.5) * day.step);
  const tops: number[][] = [];
  for (const kind of kinds) {
    const below = tops.at(-1);
    tops.push(
      sumSeries(day, troubleTypes[kind.key], steps).map((count, index) => count + (below?.[index] ?? 0)),
    );
  }
  return { times, tops };
}

export function History() {
  const { overview: text } = useMessages();
  const { data, dataUpdatedAt, error, refetch } = useQuery(troubleQuery);
  const drawn = useMemo(() => {
    if (!data) return null;
    const { times, tops } = stack(data.day, data.steps);
    // uPlot draws later series over earlier ones, so the tallest of the stack comes first.
    return { times, values: tops.toReversed(), isQuiet: tops.at(-1)?.every((top) => top === 0) };
  }, [data]);
  const series = useMemo(
    () =>
      kinds
        .map((kind): Series => ({ label: text.series[kind.key], colour: `--cell-${kind.tone}`, isBar: true }))
        .reverse(),
    [text],
  );
  return (
    <Panel title={text.happened} extra={<Freshness updatedAt={dataUpdatedAt} expectedMs={90_000} />}>
      <div className="panel-body">
        {error && !data ? (
          <Failure error={error} onRetry={() => void refetch()} />
        ) : drawn?.isQuiet ? (
          <p className="muted overview-quiet">{text.quiet}</p>
        ) : (
          <>
            <Legend items={kinds.map((kind) => [kind.tone, text.series[kind.key]])} />
            <Suspense fallback={<div style={{ height: CHART_PX }} />}>
              {drawn ? (
                <Chart label={text.happened} times={drawn.times} values={drawn.values} series={series} />
              ) : (
                <div style={{ height: CHART_PX }} />
              )}
            </Suspense>
          </>
        )}
      </div>
    </Panel>
  );
}

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useSettings } from "@/settings/context";
import { useWidth } from "./use-width";
import "./chart.css";

export type Series = { label: string; colour: string; isBar?: boolean; isDashed?: boolean };

type Props = {
  label: string;
  /** Unix seconds. */
  times: number[];
  /** One list for each series, as long as `times`. */
  values: (number | null)[][];
  series: Series[];
  /** Unix seconds at which something happened: vertical lines. */
  marks?: number[];
  /** The same for what is worse. */
  failures?: number[];
  height?: number;
  format?: (value: number) => string;
};

/** Below this the axis shows seconds, above the other it shows days. */
const SHORT_SECS = 600;
const LONG_SECS = 2 * 86_400;

function drawMarks({ ctx, bbox, valToPos }: uPlot, marks: number[], colour: string) {
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  for (const mark of marks) {
    const x = Math.round(valToPos(mark, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** A time series, as lines or bars, in the viewer's zone. */
export function Chart({
  label,
  times,
  values,
  series,
  marks,
  failures,
  height = 180,
  format = String,
}: Props) {
  const { isDark, messages } = useSettings();
  const { common } = messages;
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme changes the colours that are read
  useEffect(() => {
    const node = box.current;
    if (!node || width === 0) return;
    const style = getComputedStyle(node);
    const colour = (name: string) => style.getPropertyValue(name).trim() || "#888";
    const isBars = series.some((each) => each.isBar);
    const step = (times[1] ?? 0) - (times[0] ?? 0);
    const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
    const hours = new Intl.DateTimeFormat(
      common.locale,
      span > LONG_SECS
        ? { month: "short", day: "numeric" }
        : { timeStyle: span < SHORT_SECS ? "medium" : "short", hourCycle: "h23" },
    );
    const axis = {
      font: `11px ${style.fontFamily}`,
      stroke: colour("--text-3"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
    };
    const options: uPlot.Options = {
      width,
      height,
      legend: { show: false },
      cursor: { y: false, drag: { setScale: false } },
      scales: {
        x: { range: (_, min, max) => (isBars ? [min - step / 2, max + step / 2] : [min, max]) },
        y: { range: (_, __, max) => [0, Math.max(max * 1.1, 0.1)] },
      },
      axes: [
        { ...axis, size: 30, values: (_, ticks) => ticks.map((tick) => hours.format(tick * 1000)) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map(format) },
      ],
      series: [
        {},
        ...series.map((each) => ({
          label: each.label,
          stroke: colour(each.colour),
          fill: each.isBar ? colour(each.colour) : undefined,
          width: each.isBar ? 0 : 1.5,
          dash: each.isDashed ? [5, 4] : undefined,
          paths: each.isBar ? uPlot.paths.bars?.({ size: [0.7, 40] }) : undefined,
          points: { show: false },
        })),
      ],
    };
    const draw = (plot: uPlot) => {
      drawMarks(plot, marks ?? [], colour("--warning"));
      drawMarks(plot, failures ?? [], colour("--failed"));
    };
    if (marks?.length || failures?.length) options.hooks = { draw: [draw] };
    const plot = new uPlot(options, [times, ...values], node);
    return () => plot.destroy();
  }, [times, values, series, marks, failures, width, height, isDark, common.locale]);

  return <div className="chart" ref={box} role="img" aria-label={label} style={{ height }} />;
}

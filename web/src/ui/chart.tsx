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
  height?: number;
  format?: (value: number) => string;
};

/** A time series, as lines or bars, in the viewer's zone. */
export function Chart({ label, times, values, series, height = 180, format = String }: Props) {
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
    const isShort = (times.at(-1) ?? 0) - (times[0] ?? 0) < 600;
    const hours = new Intl.DateTimeFormat(common.locale, {
      timeStyle: isShort ? "medium" : "short",
      hourCycle: "h23",
    });
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
    const plot = new uPlot(options, [times, ...values], node);
    return () => plot.destroy();
  }, [times, values, series, width, height, isDark, common.locale]);

  return <div className="chart" ref={box} role="img" aria-label={label} style={{ height }} />;
}

import { useQuery } from "@tanstack/react-query";
import { Segmented } from "antd";
import { type KeyboardEvent, useMemo, useState } from "react";
import { type Histogram as Counts, type EventFilter, type EventSpan, histogramQuery } from "@/api/events";
import { useMessages } from "@/settings/context";
import { toneOfType } from "@/ui/event-kind";
import { formatClock, formatDay, useNumbers } from "@/ui/format";
import type { Tone } from "@/ui/phase";
import { Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import "./events.css";

const spans = {
  hour: { secs: 3600, step: 60 },
  day: { secs: 86_400, step: 900 },
  week: { secs: 7 * 86_400, step: 7200 },
} as const satisfies Record<string, EventSpan>;
type SpanName = keyof typeof spans;

/** From the bottom of a bar to its top. */
const order: readonly Tone[] = ["failed", "warning", "changing", "running", "idle"];

export type Bar = { from: number; until: number; total: number; parts: { tone: Tone; count: number }[] };

/** One bar for each step, its parts by what they mean. */
export function barsOf(counts: Counts, steps: number): Bar[] {
  return Array.from({ length: steps }, (_, index) => {
    const from = counts.from + index * counts.step;
    const byTone = new Map<Tone, number>();
    for (const [type, series] of Object.entries(counts.series)) {
      const tone = toneOfType(type);
      byTone.set(tone, (byTone.get(tone) ?? 0) + (series[index] ?? 0));
    }
    const parts = order
      .map((tone) => ({ tone, count: byTone.get(tone) ?? 0 }))
      .filter((part) => part.count > 0);
    const total = parts.reduce((sum, part) => sum + part.count, 0);
    return { from, until: from + counts.step, total, parts };
  });
}

type Props = { filter: EventFilter; onPick: (from: number, until: number) => void };

/** How many events there were over time; a bar narrows the list to its step. */
export function EventHistogram({ filter, onPick }: Props) {
  const { events: text } = useMessages();
  const number = useNumbers();
  const [chosen, setChosen] = useUrlValue("span", "hour");
  const span: SpanName = Object.hasOwn(spans, chosen) ? (chosen as SpanName) : "hour";
  const { secs, step } = spans[span];
  const { data, error, refetch } = useQuery(histogramQuery(filter, spans[span]));
  const bars = useMemo(() => (data?.step === step ? barsOf(data, secs / step) : []), [data, secs, step]);
  const total = bars.reduce((sum, bar) => sum + bar.total, 0);
  return (
    <section className="panel event-histogram" aria-label={text.overTime}>
      <div className="row wrap">
        <span className="grow muted">{data ? text.inSpan[span](number(total)) : "\u00a0"}</span>
        <Segmented
          size="small"
          value={span}
          onChange={setChosen}
          options={(Object.keys(spans) as SpanName[]).map((name) => ({
            value: name,
            label: text.span[name],
          }))}
        />
      </div>
      {error && !data ? (
        <Failure error={error} onRetry={() => void refetch()} />
      ) : (
        <Bars bars={bars} isLong={secs > 86_400} onPick={onPick} />
      )}
    </section>
  );
}

type BarsProps = { bars: Bar[]; isLong: boolean; onPick: Props["onPick"] };

/** One stop for the keyboard; arrows go from bar to bar. */
function Bars({ bars, isLong, onPick }: BarsProps) {
  const { events: text, common } = useMessages();
  const number = useNumbers();
  const [active, setActive] = useState<number | null>(null);
  const highest = Math.max(1, ...bars.map((bar) => bar.total));
  const current = Math.min(active ?? bars.length - 1, bars.length - 1);
  const move = (event: KeyboardEvent<HTMLElement>) => {
    const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    const next = current + by;
    if (by === 0 || next < 0 || next >= bars.length) return;
    event.preventDefault();
    setActive(next);
    (event.currentTarget.children[next] as HTMLElement | undefined)?.focus();
  };
  const clock = (secs: number) =>
    `${isLong ? `${formatDay(secs * 1000, common.locale)} ` : ""}${formatClock(secs * 1000, common.locale, "short")}`;
  const first = bars[0];
  const last = bars.at(-1);
  return (
    <>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields */}
      <div className="bars" role="group" aria-label={text.overTime} onKeyDown={move}>
        {bars.map((bar, index) => {
          const label = text.inStep(clock(bar.from), clock(bar.until), number(bar.total));
          return (
            <button
              key={bar.from}
              type="button"
              tabIndex={index === current ? 0 : -1}
              aria-label={label}
              title={label}
              onFocus={() => setActive(index)}
              onClick={() => onPick(bar.from, bar.until)}
            >
              {bar.parts.map((part) => (
                <span
                  key={part.tone}
                  className={`fill-${part.tone}`}
                  style={{ height: `${(100 * part.count) / highest}%` }}
                />
              ))}
            </button>
          );
        })}
      </div>
      <div className="bars-axis muted">
        <span>{first ? clock(first.from) : "\u00a0"}</span>
        <span>{last ? text.now : ""}</span>
      </div>
    </>
  );
}

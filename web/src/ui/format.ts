import { useMemo } from "react";
import type { Messages } from "@/messages";
import { useMessages } from "@/settings/context";

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

/** A length of time in its largest fitting unit: `42 s`, `5 min`, `3 h`, `12 d`. */
export function formatSpan(secs: number, common: Messages["common"]): string {
  const abs = Math.abs(secs);
  if (abs > 0 && abs < 0.5) return common.underSecond;
  if (abs < MINUTE) return common.seconds(Math.round(abs));
  if (abs < HOUR) return common.minutes(Math.round(abs / MINUTE));
  if (abs < 2 * DAY) return common.hours(Math.round(abs / HOUR));
  return common.days(Math.round(abs / DAY));
}

/** `5 min ago`, `in 3 h`. */
export function formatRelative(atMs: number, nowMs: number, common: Messages["common"]): string {
  const secs = (nowMs - atMs) / 1000;
  if (Math.abs(secs) < 5) return common.justNow;
  const span = formatSpan(secs, common);
  return secs > 0 ? common.ago(span) : common.in(span);
}

/** The exact instant in the viewer's zone and in UTC. */
export function formatExact(atMs: number, locale: string): string {
  const local = new Intl.DateTimeFormat(locale, {
    dateStyle: "medium",
    timeStyle: "long",
  }).format(atMs);
  return `${local}\n${new Date(atMs).toISOString()}`;
}

export function formatClock(atMs: number, locale: string, timeStyle: "short" | "medium" = "medium"): string {
  return new Intl.DateTimeFormat(locale, { timeStyle, hourCycle: "h23" }).format(atMs);
}

/** The day without its year: `Mon 16 Nov`. */
export function formatDay(atMs: number, locale: string): string {
  return new Intl.DateTimeFormat(locale, { weekday: "short", day: "numeric", month: "short" }).format(atMs);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function formatPercent(value: number): string {
  if (value === 0) return "0 %";
  if (value < 0.1) return "< 0.1 %";
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** What is set by hand or stands on an axis: no more digits than it has. */
export function formatRoundPercent(value: number): string {
  return `${Number(value.toFixed(2))} %`;
}

/** Numbers in the way of the chosen language. */
export function useNumbers() {
  const { locale } = useMessages().common;
  return useMemo(() => {
    const format = new Intl.NumberFormat(locale);
    return (value: number) => format.format(value);
  }, [locale]);
}

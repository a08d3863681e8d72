import { useSyncExternalStore } from "react";
import { useMessages } from "@/settings/context";
import { formatClock, formatExact, formatRelative } from "./format";

let now = Date.now();
const watchers = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(watcher: () => void) {
  watchers.add(watcher);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const each of watchers) each();
  }, 5000);
  return () => {
    watchers.delete(watcher);
    if (watchers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The present moment in milliseconds, every five seconds; one timer for the whole page. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

type Props = { at: number; form?: "relative" | "clock" };

/** Beyond this there is no date, and formatting one throws. */
const AT_MAX = 8.64e15;

/** A moment (Unix milliseconds): relative or as a clock time, with the exact instant on hover. */
export function TimeMs({ at: given, form = "relative" }: Props) {
  const at = Math.min(Math.max(given, -AT_MAX), AT_MAX);
  const { common } = useMessages();
  const present = useNow();
  const text =
    form === "clock" ? formatClock(at, common.locale) : formatRelative(at, Math.max(present, 0), common);
  return (
    <time dateTime={new Date(at).toISOString()} title={formatExact(at, common.locale)}>
      {text}
    </time>
  );
}

/** That a host is away, and since when. */
export function AwaySince({ at }: { at: number | null | undefined }) {
  const { terms } = useMessages();
  if (!at) return terms.away;
  return (
    <span className="tone-idle">
      {terms.awaySince} <TimeMs at={at * 1000} />
    </span>
  );
}

/** A moment in Unix seconds; 0 and nothing are "never". */
export function Time({ at, form }: { at: number | null | undefined; form?: Props["form"] }) {
  const { common } = useMessages();
  if (!at) return <span className="muted">{common.never}</span>;
  return <TimeMs at={at * 1000} form={form} />;
}

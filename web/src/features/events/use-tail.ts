import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type Event, type EventFilter, eventsQuery, fetchEvents } from "@/api/events";
import { splitProcess } from "@/api/processes";
import { eventStream } from "@/api/stream";

const KEPT = 5000;
const PAGE = 500;
const LIST_MAX = 25_000;
const FLUSH_MS = 250;

/** Whether an event of the stream belongs into a filtered list; hosts are compared as `CLOUD:IP`, address or agent. */
export function matches(filter: EventFilter, event: Event): boolean {
  const { namespace, name } = splitProcess(event.process ?? "/");
  if (filter.namespace && filter.namespace !== namespace) return false;
  if (filter.name && filter.name !== name) return false;
  if (filter.type && !filter.type.split(",").includes(event.type)) return false;
  if (filter.since_ms && event.stored_at_ms < filter.since_ms) return false;
  if (filter.until_ms && event.stored_at_ms >= filter.until_ms) return false;
  if (!filter.host) return true;
  return filter.host === event.host || `0:${filter.host}` === event.host || filter.host === event.agent;
}

/** Both lists have the newest event first. */
function mergeEvents(a: Event[], b: Event[]): Event[] {
  const known = new Map<number, Event>();
  for (const event of b) known.set(event.id, event);
  for (const event of a) known.set(event.id, event);
  return [...known.values()].sort((one, other) => other.id - one.id);
}

/**
 * The newest events read again, joined with those held before. A page that is full and does not reach what is held
 * leaves a hole between the two: then the list begins anew with the page, and older events are read as one scrolls.
 */
export function joinEvents(page: Event[], held: Event[], isFull: boolean): Event[] {
  const oldest = page.at(-1)?.id ?? 0;
  const newestHeld = held[0]?.id ?? 0;
  if (held.length === 0 || (isFull && newestHeld < oldest)) return page;
  return mergeEvents(page, held);
}

type Held = {
  filter: string;
  /** The page of the newest that is part of the list. */
  page: Event[] | undefined;
  events: Event[];
  /** Nothing matches that is older. */
  isReached: boolean;
};

/** The newest events, and those that come; while paused they are counted and wait. */
export function useTail(filter: EventFilter, isPaused: boolean) {
  const text = JSON.stringify(filter);
  const stable = useMemo(() => JSON.parse(text) as EventFilter, [text]);
  const base = useQuery(eventsQuery({ ...stable, limit: PAGE }));
  const [held, setHeld] = useState<Held>({ filter: text, page: undefined, events: [], isReached: false });
  const [waiting, setWaiting] = useState(0);
  const [isFetchingOlder, setFetchingOlder] = useState(false);
  const pending = useRef<Event[]>([]);

  const isOther = held.filter !== text;
  const isAwaited = isOther || held.page === undefined;
  if (isOther || (held.page !== base.data && (isAwaited || !isPaused))) {
    setHeld(
      adopt(isOther ? { filter: text, page: undefined, events: [], isReached: false } : held, base.data),
    );
  }
  // biome-ignore lint/correctness/useExhaustiveDependencies: another filter begins anew
  useEffect(() => {
    pending.current = [];
    setWaiting(0);
    setFetchingOlder(false);
  }, [text]);

  const oldest = held.events.at(-1)?.id;
  const fetchOlder = useCallback(async () => {
    if (oldest === undefined) return;
    setFetchingOlder(true);
    try {
      const older = await fetchEvents({ ...stable, before: oldest, limit: PAGE });
      setHeld((now) => {
        // The list began anew meanwhile.
        if (now.filter !== text || now.events.at(-1)?.id !== oldest) return now;
        return { ...now, events: mergeEvents(now.events, older), isReached: older.length < PAGE };
      });
    } catch {
      // The next scroll to the end tries again.
    } finally {
      setFetchingOlder(false);
    }
  }, [stable, text, oldest]);
  const hasOlder = held.events.length >= PAGE && held.events.length < LIST_MAX && !held.isReached;

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      if (isPaused) {
        setWaiting(pending.current.length);
        return;
      }
      const add = pending.current;
      pending.current = [];
      setWaiting(0);
      if (add.length > 0) setHeld((now) => addFresh(now, add));
    };
    flush();
    const unlisten = eventStream.listen((events) => {
      const wanted = events.filter((event) => matches(stable, event));
      if (wanted.length === 0) return;
      pending.current = [...pending.current, ...wanted].slice(-KEPT);
      timer ??= setTimeout(flush, FLUSH_MS);
    });
    return () => {
      unlisten();
      clearTimeout(timer);
    };
  }, [stable, isPaused]);

  return {
    events: held.events,
    waiting,
    isLoading: base.isPending,
    error: base.error,
    updatedAt: base.dataUpdatedAt,
    retry: base.refetch,
    isFetchingOlder,
    fetchOlder: hasOlder && !isFetchingOlder ? fetchOlder : undefined,
  };
}

function adopt(held: Held, page: Event[] | undefined): Held {
  if (!page) return { ...held, page };
  const events = joinEvents(page, held.events, page.length >= PAGE);
  const isAnew = events === page;
  return { ...held, page, events, isReached: isAnew ? page.length < PAGE : held.isReached };
}

/** A list that becomes too long loses its end, which can be read again. */
function addFresh(held: Held, fresh: Event[]): Held {
  const events = mergeEvents(fresh, held.events);
  if (events.length <= LIST_MAX) return { ...held, events };
  return { ...held, events: events.slice(0, LIST_MAX), isReached: false };
}

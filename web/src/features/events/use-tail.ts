import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type Event, type EventFilter, eventsQuery, fetchEvents } from "@/api/events";
import { splitProcess } from "@/api/processes";
import { eventStream } from "@/api/stream";

const KEPT = 5000;
const PAGE = 500;
const OLDER_MAX = 20_000;
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

/** The newest events, and those that come; while paused they are counted and wait. */
export function useTail(filter: EventFilter, isPaused: boolean) {
  const text = JSON.stringify(filter);
  const stable = useMemo(() => JSON.parse(text) as EventFilter, [text]);
  const base = useQuery(eventsQuery({ ...stable, limit: PAGE }));
  const [fresh, setFresh] = useState<Event[]>([]);
  const [waiting, setWaiting] = useState(0);
  const [older, setOlder] = useState<Event[]>([]);
  const [isStarted, setStarted] = useState(false);
  const [isReached, setReached] = useState(false);
  const pending = useRef<Event[]>([]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: another filter begins anew
  useEffect(() => {
    pending.current = [];
    setFresh([]);
    setWaiting(0);
    setOlder([]);
    setStarted(false);
    setReached(false);
  }, [text]);

  const oldest = (older.at(-1) ?? base.data?.at(-1))?.id;
  const fetchOlder = useCallback(async () => {
    if (oldest === undefined) return;
    setStarted(true);
    try {
      const page = await fetchEvents({ ...stable, before: oldest, limit: PAGE });
      setOlder((now) => [...now, ...page]);
      setReached(page.length < PAGE);
    } catch {
      // The next scroll to the end tries again.
    } finally {
      setStarted(false);
    }
  }, [stable, oldest]);
  const hasOlder = (base.data?.length ?? 0) >= PAGE && !isReached && older.length < OLDER_MAX;

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      if (isPaused) {
        setWaiting(pending.current.length);
        return;
      }
      const add = pending.current.reverse();
      pending.current = [];
      setWaiting(0);
      if (add.length > 0) setFresh((now) => [...add, ...now].slice(0, KEPT));
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

  const events = useMemo(() => {
    const newest = base.data?.[0]?.id ?? 0;
    const oldestOfBase = base.data?.at(-1)?.id ?? 0;
    return [
      ...fresh.filter((event) => event.id > newest),
      ...(base.data ?? []),
      ...older.filter((event) => event.id < oldestOfBase),
    ];
  }, [fresh, base.data, older]);
  return {
    events,
    waiting,
    isLoading: base.isPending,
    error: base.error,
    retry: base.refetch,
    isFetchingOlder: isStarted,
    fetchOlder: hasOlder && !isStarted ? fetchOlder : undefined,
  };
}

import type { Event } from "./events";

/** Where the stream of events stands, and when the server last said anything on it. */
export type StreamState = {
  status: "connecting" | "open" | "away";
  heardAt: number;
  awaySince: number | null;
};

type Listener = (events: Event[]) => void;
/** Told when the stream begins without a place, so that what happened before is not on it. */
type GapListener = (isFirst: boolean) => void;

const SILENCE_MAX_MS = 40_000; // the server says every 15 s that it is there
const RETRY_MAX_MS = 10_000;

/** One stream for the whole console; it reconnects behind the last event that it saw. */
export class EventStream {
  state: StreamState = { status: "connecting", heardAt: 0, awaySince: null };
  private readonly listeners = new Set<Listener>();
  private readonly gapListeners = new Set<GapListener>();
  private readonly watchers = new Set<() => void>();
  private lastId: number | null = null;
  private wasOpen = false;
  private stopper: AbortController | null = null;

  start() {
    if (this.stopper) return;
    this.stopper = new AbortController();
    void this.run(this.stopper.signal);
  }

  stop() {
    this.stopper?.abort();
    this.stopper = null;
    this.lastId = null;
    this.wasOpen = false;
    this.setState({ status: "connecting", heardAt: 0, awaySince: null });
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  listenForGaps(listener: GapListener): () => void {
    this.gapListeners.add(listener);
    return () => this.gapListeners.delete(listener);
  }

  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  private setState(state: StreamState) {
    this.state = state;
    for (const watcher of this.watchers) watcher();
  }

  private async run(signal: AbortSignal) {
    let failures = 0;
    while (!signal.aborted) {
      try {
        await this.read(signal, () => {
          failures = 0;
        });
      } catch {
        if (signal.aborted) return;
      }
      const awaySince = this.state.awaySince ?? Date.now();
      this.setState({ ...this.state, status: "away", awaySince });
      failures += 1;
      await pause(Math.min(RETRY_MAX_MS, 300 * 2 ** failures) * (0.5 + Math.random() / 2), signal);
    }
  }

  private async read(signal: AbortSignal, onOpen: () => void) {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    signal.addEventListener("abort", abort);
    let silence = setTimeout(abort, SILENCE_MAX_MS);
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (this.lastId !== null) headers["last-event-id"] = String(this.lastId);
      const answer = await fetch("/api/v1/events/stream", { headers, signal: attempt.signal });
      if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
      onOpen();
      this.opened();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      this.heard();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(abort, SILENCE_MAX_MS);
        this.heard();
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop() ?? "";
        this.deliver(blocks.flatMap(parseBlock));
      }
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", abort);
      attempt.abort();
    }
  }

  /** Behind an event the server goes on where it stopped; without one it begins with what happens now. */
  private opened() {
    const isFirst = !this.wasOpen;
    this.wasOpen = true;
    if (this.lastId === null) for (const listener of this.gapListeners) listener(isFirst);
  }

  private heard() {
    this.setState({ status: "open", heardAt: Date.now(), awaySince: null });
  }

  private deliver(events: Event[]) {
    const last = events.at(-1);
    if (!last) return;
    this.lastId = last.id;
    for (const listener of this.listeners) listener(events);
  }
}

/** The event of one block of a stream; comments and keep-alives are none. */
export function parseBlock(block: string): Event[] {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  if (lines.length === 0) return [];
  return [JSON.parse(lines.map((line) => line.slice(5)).join("\n")) as Event];
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

export const eventStream = new EventStream();

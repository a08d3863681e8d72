import { afterEach, expect, test, vi } from "vitest";
import { EventStream, parseBlock } from "./stream";

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a block of a stream is one event", () => {
  const block = 'id: 7\nevent: exited\ndata: {"id": 7, "type": "exited"}';

  expect(parseBlock(block)).toEqual([{ id: 7, type: "exited" }]);
});

test("a keep-alive is no event", () => {
  expect(parseBlock(": still here")).toEqual([]);
});

/** A server whose streams end by hand. */
function streams() {
  const opened: { lastId: string | null; send: (text: string) => void; end: () => void }[] = [];
  vi.stubGlobal("fetch", async (_: string, init: { headers: Record<string, string> }) => {
    let send: (text: string) => void = () => undefined;
    let end: () => void = () => undefined;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        send = (text) => controller.enqueue(new TextEncoder().encode(text));
        end = () => controller.close();
      },
    });
    opened.push({ lastId: init.headers["last-event-id"] ?? null, send, end });
    return new Response(body);
  });
  return opened;
}

test("a stream that lost its place says that something may be missing", async () => {
  vi.useFakeTimers();
  const opened = streams();
  const stream = new EventStream();
  const gaps: boolean[] = [];
  stream.listenForGaps((isFirst) => gaps.push(isFirst));

  stream.start();
  await vi.waitFor(() => expect(opened).toHaveLength(1));
  opened[0]?.end();
  await vi.advanceTimersByTimeAsync(11_000);
  expect(opened).toHaveLength(2);

  expect(gaps).toEqual([true, false]);
  stream.stop();
});

test("a stream that saw an event goes on behind it, and nothing is missing", async () => {
  vi.useFakeTimers();
  const opened = streams();
  const stream = new EventStream();
  const gaps: boolean[] = [];
  const seen: number[] = [];
  stream.listenForGaps((isFirst) => gaps.push(isFirst));
  stream.listen((events) => seen.push(...events.map((event) => event.id)));

  stream.start();
  await vi.waitFor(() => expect(opened).toHaveLength(1));
  opened[0]?.send('id: 7\ndata: {"id": 7, "type": "exited"}\n\n');
  await vi.waitFor(() => expect(seen).toEqual([7]));
  opened[0]?.end();
  await vi.advanceTimersByTimeAsync(11_000);

  expect(opened.map((each) => each.lastId)).toEqual([null, "7"]);
  expect(gaps).toEqual([true]);
  stream.stop();
});

import { expect, test } from "vitest";
import type { Event } from "@/api/events";
import { keysOf } from "./live-cache";

const event = (more: Partial<Event>) => ({ type: "exited", host: "0:10.0.0.1", ...more }) as Event;

test("an event of a process concerns its page and the sums", () => {
  expect(keysOf(event({ process: "a%2Fb/c" }))).toEqual([
    ["overview"],
    ["overview-map"],
    ["process", "a/b", "c"],
    ["facets"],
  ]);
});

test("an agent that comes or goes concerns the hosts", () => {
  expect(keysOf(event({ type: "agent_offline" }))).toContainEqual(["hosts"]);
});

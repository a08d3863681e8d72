import { expect, test } from "vitest";
import type { Event } from "@/api/events";
import type { Pool } from "@/api/server";
import { isOfPool, rank } from "./ranking";
import { formulaOf } from "./ranking-table";

const pool = {
  namespace: "web",
  id: "web",
  host: "0:10.0.0.1",
  cpu: 40,
  memory: 30,
  cpu_weight: "usage",
  memory_weight: "usage_by_limit",
  dry_run: false,
  usage: {
    cpu_percent: 15,
    memory_percent: 9,
    members: [
      { process: "web/a", cpu_percent: 5, memory_percent: 6 },
      { process: "web/b", cpu_percent: 10, memory_percent: 3 },
    ],
  },
} as unknown as Pool;

test("by usage, the largest goes first", () => {
  const ranked = rank(pool, "cpu", new Map());

  expect(ranked.map((each) => [each.process, formulaOf(each)])).toEqual([
    ["web/b", "10 %"],
    ["web/a", "5.0 %"],
  ]);
});

test("by usage of the own limit, the pool's limit stands in for one that is missing", () => {
  const ranked = rank(pool, "memory", new Map([["web/b", { memory: 5 }]]));

  expect(ranked.map((each) => [each.process, formulaOf(each)])).toEqual([
    ["web/b", "3.0 % ÷ 5.0 % = 0.600"],
    ["web/a", "6.0 % ÷ 30 % = 0.200"],
  ]);
});

test("pools of one id in two namespaces have a history each", () => {
  const event = (more: object) => ({ details: { pool: "web" }, ...more }) as unknown as Event;

  expect(isOfPool(event({ process: "web/a" }), pool)).toBe(true);
  expect(isOfPool(event({ process: "shop/a" }), pool)).toBe(false);
  expect(isOfPool(event({ details: { pool: "web", namespace: "shop" } }), pool)).toBe(false);
  expect(isOfPool(event({ details: { pool: "web", namespace: "web" } }), pool)).toBe(true);
  expect(isOfPool(event({}), pool)).toBe(true);
  expect(isOfPool(event({ details: { pool: "api" }, process: "web/a" }), pool)).toBe(false);
});

import { expect, test } from "vitest";
import { stepsOf } from "./rollout";

const labels = { canary: "canary", batch: (n: number) => `batch ${n}` };
const rollout = { state: "running" as const, max_failures: 0, released: 0, wait_healthy: false };

test("the canary goes first, the rest in batches", () => {
  const steps = stepsOf({ ...rollout, canary: 2, max_parallel: 4 }, 9, labels);

  expect(steps.map((step) => [step.label, step.from, step.to])).toEqual([
    ["canary", 0, 2],
    ["batch 1", 2, 6],
    ["batch 2", 6, 9],
  ]);
});

test("many batches are drawn as few steps that cover all targets", () => {
  const steps = stepsOf({ ...rollout, canary: 0, max_parallel: 1 }, 30_000, labels);

  expect(steps.length).toBeLessThanOrEqual(60);
  expect([steps[0]?.from, steps.at(-1)?.to]).toEqual([0, 30_000]);
  expect(steps[0]?.label).toBe("batch 1 – batch 500");
});

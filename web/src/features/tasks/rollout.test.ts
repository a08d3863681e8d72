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

import { expect, test } from "vitest";
import type { PlannedTarget } from "@/api/tasks";
import { hintOf } from "./plan-view";
import { fateOf } from "./use-plan";

const target = (more: Partial<PlannedTarget>): PlannedTarget => ({
  host: "0:10.0.0.1",
  process: "web/a",
  operation: "start",
  ...more,
});

test("a target runs, fails for its host, or is refused, and the plan says by what", () => {
  const refused = (code: number) => ({ code, name: "", message: "no" });

  expect(fateOf(target({}))).toBe("runs");
  expect(fateOf(target({ online: false }))).toBe("away");
  expect(fateOf(target({ online: false, refused: refused(128) }))).toBe("cordoned");
  expect(fateOf(target({ online: false, refused: refused(403) }))).toBe("forbidden");
  expect(fateOf(target({ refused: refused(832) }))).toBe("refused");
});

test("the plan says where an operation finds what one does not expect", () => {
  expect(hintOf(target({ phase: "running" }))).toBe("runsAlready");
  expect(hintOf(target({ phase: "stopped" }))).toBeUndefined();
  expect(hintOf(target({ operation: "restart", phase: "failed" }))).toBe("doesNotRun");
  expect(hintOf(target({ operation: "manage", phase: "failed" }))).toBeUndefined();
});

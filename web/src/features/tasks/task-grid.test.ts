import { expect, test } from "vitest";
import { tonesOf } from "./task-grid";

test("each letter of the grid has its tone", () => {
  expect(tonesOf("prsfckmxa")).toEqual([
    "empty",
    "changing",
    "running",
    "failed",
    "idle",
    "idle",
    "warning",
    "warning",
    "warning",
  ]);
});

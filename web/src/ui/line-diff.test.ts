import { expect, test } from "vitest";
import { jsonLines, lineDiff } from "./line-diff";

test("equal texts have only equal lines", () => {
  const lines = lineDiff(["a", "b"], ["a", "b"]);

  expect(lines).toEqual([
    { left: "a", right: "a" },
    { left: "b", right: "b" },
  ]);
});

test("a changed line stands beside the one it replaces", () => {
  const lines = lineDiff(["a", "old", "z"], ["a", "new", "z"]);

  expect(lines).toEqual([
    { left: "a", right: "a" },
    { left: "old", right: "new" },
    { left: "z", right: "z" },
  ]);
});

test("an added line has nothing on the left", () => {
  expect(lineDiff(["a"], ["a", "b"])).toContainEqual({ left: null, right: "b" });
});

test("the order of keys makes no difference", () => {
  expect(jsonLines({ a: 1, b: { d: 1, c: 2 } })).toEqual(jsonLines({ b: { c: 2, d: 1 }, a: 1 }));
});

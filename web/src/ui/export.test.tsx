import { expect, test } from "vitest";
import { toCsv } from "./export";

test("cells with commas, quotes and line breaks are quoted", () => {
  expect(toCsv(["a"], [['say "hi", now'], ["two\nlines"]])).toBe('a\r\n"say ""hi"", now"\r\n"two\nlines"');
});

test("a text that a spreadsheet would run is marked as text", () => {
  expect(toCsv(["a"], [["=cmd()"], ["-1"]])).toBe("a\r\n'=cmd()\r\n'-1");
});

test("numbers stay numbers", () => {
  expect(toCsv(["a"], [[-1], [null]])).toBe("a\r\n-1\r\n");
});

import { expect, test } from "vitest";
import { en } from "@/messages/en";
import { zh } from "@/messages/zh";
import { formatBytes, formatPercent, formatRelative, formatSpan } from "./format";

test("spans use the largest unit that fits", () => {
  const spans = [42, 90, 7200, 400_000].map((secs) => formatSpan(secs, en.common));

  expect(spans).toEqual(["42 s", "2 min", "2 h", "5 d"]);
});

test("moments are told relative to now, in the chosen language", () => {
  expect(formatRelative(0, 120_000, en.common)).toBe("2 min ago");
  expect(formatRelative(120_000, 0, zh.common)).toBe("2 分钟后");
  expect(formatRelative(0, 1000, en.common)).toBe("just now");
});

test("small shares are not shown as zero", () => {
  expect([0, 0.01, 3.14, 55.5].map(formatPercent)).toEqual(["0 %", "< 0.1 %", "3.1 %", "56 %"]);
});

test("bytes have binary units", () => {
  expect([512, 1536, 17_179_869_184].map(formatBytes)).toEqual(["512 B", "1.5 KiB", "16 GiB"]);
});

import { expect, test } from "vitest";
import { joinProcess, splitProcess } from "./processes";

test("a process is split at its first slash", () => {
  expect(splitProcess("job//opt/app")).toEqual({ namespace: "job", name: "/opt/app" });
});

test("a namespace with a slash survives", () => {
  const parts = { namespace: "a/b 100%", name: "c" };

  expect(joinProcess(parts.namespace, parts.name)).toBe("a%2Fb 100%25/c");
  expect(splitProcess(joinProcess(parts.namespace, parts.name))).toEqual(parts);
});

import { expect, test } from "vitest";
import { sessionWith } from "../../test/render";
import { hasRight } from "./rights";

test("everything covers every place", () => {
  const session = sessionWith({ operate: ["everything"] });

  expect(hasRight(session, "operate", { namespace: "web" })).toBe(true);
});

test("a class does not imply another", () => {
  expect(hasRight(sessionWith({ operate: ["everything"] }), "register")).toBe(false);
});

test("a scope covers only its own place", () => {
  const session = sessionWith({ operate: ["namespace:web", "business:3"] });

  expect(hasRight(session, "operate", { namespace: "web", business: 9 })).toBe(true);
  expect(hasRight(session, "operate", { namespace: "db", business: 3 })).toBe(true);
  expect(hasRight(session, "operate", { namespace: "db", business: 9 })).toBe(false);
});

test("without a place, a right somewhere is enough", () => {
  expect(hasRight(sessionWith({ read: ["cloud:0"] }), "read")).toBe(true);
});

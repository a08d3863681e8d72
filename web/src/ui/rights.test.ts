import { expect, test } from "vitest";
import { sessionWith } from "../../test/render";
import { hasRight, placesOf } from "./rights";

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

test("only who administers everything administers anything", () => {
  const session = sessionWith({ admin: ["business:3"] });

  expect(hasRight(session, "admin")).toBe(false);
  expect(hasRight(session, "admin", { business: 3 })).toBe(false);
  expect(hasRight(sessionWith({ admin: ["everything"] }), "admin", { business: 3 })).toBe(true);
});

test("instances are in the places of all their hosts, each once", () => {
  const places = placesOf("web", [
    { host: "0:10.0.0.1", business: 3 },
    { host: "0:10.0.0.2", business: 3 },
    { host: "5:10.0.0.1", business: null },
  ]);

  expect(places).toEqual([
    { namespace: "web", business: 3, cloud: 0 },
    { namespace: "web", business: null, cloud: 5 },
  ]);
});

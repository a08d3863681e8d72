import { expect, test } from "vitest";
import { covers, grantsOf } from "./rights-of";

const roles = [
  { name: "viewer", classes: ["read"], built_in: true },
  { name: "operator", classes: ["read", "operate"], built_in: true },
];
const bindings = [
  { id: "1", subject: "user:ana", role: "operator", scope: "set:1", created_at: 0 },
  { id: "2", subject: "user:bo", role: "viewer", scope: "everything", created_at: 0 },
];

test("only roles with the class give it", () => {
  expect(grantsOf(bindings, roles, "operate").map((grant) => grant.subject)).toEqual(["user:ana"]);
});

test("a set covers the businesses that belong to it", () => {
  const sets = [{ id: 1, members: [2, 7] }];

  expect(covers("set:1", "business:7", sets)).toBe(true);
  expect(covers("set:1", "business:3", sets)).toBe(false);
  expect(covers("everything", "namespace:web", sets)).toBe(true);
});

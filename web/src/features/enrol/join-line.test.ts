import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { downloadLine, installLine } from "./join-line";

const token = { address: "s:9077", token: "PT1.x.y", cloud: 3 };

test("the line pins the program's digest and shows the token to no argument", () => {
  const file = { name: "proctor-agent-x86_64", bytes: 1, sha256: "ab".repeat(32) };

  const line = downloadLine(token, "http://s:8080", file);

  expect(line).toContain(`'http://s:8080/download/proctor-agent-x86_64'`);
  expect(line).toContain(`echo '${"ab".repeat(32)}  '"$d/proctor-agent" | sha256sum -c --quiet -`);
  expect(line).toContain(
    `PROCTOR_TOKEN='PT1.x.y' "$d/proctor-agent" install --server 's:9077' --cloud-id 3;`,
  );
  expect(line).not.toContain("--token");
  expect(line).not.toContain("\n");
});

test("a certificate of the server's own authority does, because the digest is checked", () => {
  const file = { name: "proctor-agent-x86_64", bytes: 1, sha256: "ab" };

  expect(downloadLine(token, "https://s", file)).toContain("curl -fsSLk ");
  expect(downloadLine(token, "http://s", file)).toContain("curl -fsSL ");
});

test("what an address holds cannot end its quotes", () => {
  expect(installLine({ address: "a'b", token: "t", cloud: null })).toBe(
    `PROCTOR_TOKEN='t' proctor-agent install --server 'a'\\''b'`,
  );
});

test("the line is the one that `proctor join-command` prints", () => {
  const file = { name: "proctor-agent-x86_64", bytes: 1, sha256: "ab".repeat(32) };

  const lines = [
    downloadLine(token, "http://s:8080", file),
    downloadLine({ ...token, cloud: null }, "https://s", file),
  ];

  const known = readFileSync("../crates/cli/src/commands/join_lines.txt", "utf8");
  expect(`${lines.join("\n")}\n`).toBe(known);
});

// The shell's first load (its entry with everything that it imports at once, the messages and the overview)
// must stay small.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUDGET = 300 * 1000;
const assets = readdirSync("dist/assets");
const files = new Set();

/** A script with the scripts that it imports statically. */
function take(name) {
  if (files.has(name)) return;
  files.add(name);
  if (!name.endsWith(".js")) return;
  const text = readFileSync(`dist/assets/${name}`, "utf8");
  for (const [, imported] of text.matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)) take(imported);
}

const page = readFileSync("dist/index.html", "utf8");
for (const [, name] of page.matchAll(/(?:src|href)="\/assets\/([^"]+)"/g)) take(name);
const shell = new Set(files);
for (const name of assets) if (/^(en|overview-page|overview)-/.test(name)) take(name);

const size = (name) => gzipSync(readFileSync(`dist/assets/${name}`)).length;
const sum = (names) => [...names].reduce((total, name) => total + size(name), 0) / 1000;
const total = sum(files);
console.log(
  `shell ${sum(shell).toFixed(1)} kB, with texts and overview ${total.toFixed(1)} kB gzip (at most ${BUDGET / 1000} kB)`,
);
if (total * 1000 > BUDGET) {
  for (const name of [...files].sort((a, b) => size(b) - size(a)).slice(0, 10)) {
    console.error(`  ${(size(name) / 1000).toFixed(1)} kB ${name}`);
  }
  process.exit(1);
}

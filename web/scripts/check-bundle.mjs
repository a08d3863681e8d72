// The shell's first load (its entry with everything that it imports at once, and the messages) must stay small.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUDGET = 300 * 1000;
const manifest = JSON.parse(readFileSync("dist/.vite/manifest.json", "utf8"));
const files = new Set();

function take(key) {
  const chunk = manifest[key];
  if (!chunk || files.has(chunk.file)) return;
  files.add(chunk.file);
  for (const file of chunk.css ?? []) files.add(file);
  for (const each of chunk.imports ?? []) take(each);
}

take("index.html");
take("src/messages/en.ts");
take("src/features/overview/overview-page.tsx");
const size = (file) => gzipSync(readFileSync(`dist/${file}`)).length;
const total = [...files].reduce((sum, file) => sum + size(file), 0);
console.log(
  `first load: ${files.size} files, ${(total / 1000).toFixed(1)} kB gzip (budget ${BUDGET / 1000} kB)`,
);
if (total > BUDGET) {
  for (const file of [...files].sort((a, b) => size(b) - size(a)).slice(0, 10)) {
    console.error(`  ${(size(file) / 1000).toFixed(1)} kB ${file}`);
  }
  process.exit(1);
}

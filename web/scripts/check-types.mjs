// Fails when src/api/schema.d.ts is not what docs/openapi.json gives.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const dir = mkdtempSync(join(tmpdir(), "proctor-types-"));
try {
  const fresh = join(dir, "schema.d.ts");
  execFileSync(
    "npx",
    ["openapi-typescript", "../docs/openapi.json", "--default-non-nullable=false", "-o", fresh],
    { stdio: "pipe" },
  );
  if (readFileSync(fresh, "utf8") !== readFileSync("src/api/schema.d.ts", "utf8")) {
    console.error("src/api/schema.d.ts is not current: run `npm run types` and commit it");
    process.exit(1);
  }
  console.log("src/api/schema.d.ts is current");
} finally {
  rmSync(dir, { recursive: true });
}

import { defineConfig } from "vitest/config";

/** End to end: a real server, simulated hosts, Chromium. */
export default defineConfig({
  test: {
    include: ["test/e2e/**/*.test.mjs"],
    globalSetup: ["test/e2e/world.mjs"],
    fileParallelism: false,
    testTimeout: 90_000,
    hookTimeout: 120_000,
  },
});

import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vitest/config";
import { sessionBridge } from "./dev/session-bridge.mjs";

/** Serves /api from a running Proctor: PROCTOR_SERVER, http://127.0.0.1:8080 by default. */
function proctorApi(): Plugin {
  return {
    name: "proctor-api",
    configureServer(server) {
      server.middlewares.use(sessionBridge(process.env.PROCTOR_SERVER ?? "http://127.0.0.1:8080"));
    },
  };
}

export default defineConfig({
  plugins: [react(), proctorApi()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    // Data URLs would need an exception in the content security policy.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1000,
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["test/setup.ts"],
    css: false,
    testTimeout: 20_000,
  },
});

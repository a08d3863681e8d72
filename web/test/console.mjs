// The console of a running Proctor. The server serves the one that was built into it; where that is another one than
// dist, dist is served as the server would: its files, the history fallback and the headers.
import { readFileSync } from "node:fs";
import http from "node:http";
import { extname, join, normalize } from "node:path";

const POLICY = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join("; ");

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

/** The server itself where it has the console of dist; else dist in front of it. */
export async function consoleOf(server, dist = "dist") {
  if (await isEmbedded(server, dist)) return { url: server, isEmbedded: true, stop: () => undefined };
  console.warn(`the console of ${server} is not the one in ${dist}: build the server after the console`);
  return { ...(await serveConsole(server, dist)), isEmbedded: false };
}

async function isEmbedded(server, dist) {
  const answer = await fetch(`${server}/`, { headers: { accept: "text/html" } });
  return answer.ok && (await answer.text()) === readFileSync(join(dist, "index.html"), "utf8");
}

export function serveConsole(server, dist = "dist") {
  const target = new URL(server);
  const listener = http.createServer((req, res) => {
    if (req.url?.startsWith("/api/")) return forward(target, req, res);
    const path = normalize(decodeURIComponent(new URL(req.url ?? "/", "http://console").pathname));
    const [file, body] = read(dist, path);
    res.writeHead(200, {
      "content-type": TYPES[extname(file)] ?? "application/octet-stream",
      "content-security-policy": POLICY,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
    });
    res.end(body);
  });
  return new Promise((resolve) => {
    listener.listen(Number(process.env.CONSOLE_PORT) || 0, "127.0.0.1", () => {
      const url = `http://127.0.0.1:${listener.address().port}`;
      resolve({ url, stop: () => listener.closeAllConnections() ?? listener.close() });
    });
  });
}

function read(dist, path) {
  try {
    if (extname(path)) return [path, readFileSync(join(dist, path))];
  } catch {
    // Not a file: a page of the console.
  }
  return ["index.html", readFileSync(join(dist, "index.html"))];
}

function forward(target, req, res) {
  const headers = { ...req.headers, host: target.host };
  const upstream = http.request(new URL(req.url, target), { method: req.method, headers }, (answer) => {
    res.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(res);
  });
  upstream.on("error", () => {
    if (res.headersSent) return res.destroy();
    res.writeHead(503, { "content-type": "application/json" });
    res.end(JSON.stringify({ error: { code: "unavailable", message: "the server cannot be reached" } }));
  });
  res.on("close", () => upstream.destroy());
  req.pipe(upstream);
}

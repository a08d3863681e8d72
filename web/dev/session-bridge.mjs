// Sign-in for a console that is served beside a Proctor server, in development and in tests: keeps
// user tokens behind a cookie, as the server does for the console that it serves itself. A server
// that has sessions of its own gets every request as it is.
import { randomUUID } from "node:crypto";
import http from "node:http";

const COOKIE = "proctor_session";

/**
 * @param {string} server
 * @returns {(req: http.IncomingMessage, res: http.ServerResponse, next: () => void) => void}
 */
export function sessionBridge(server) {
  /** @type {Map<string, {token: string, csrf: string}>} */
  const sessions = new Map();
  const target = new URL(server);
  /** @type {Promise<boolean> | undefined} */
  let native;
  const hasSessions = () => {
    native ??= fetch(new URL("/api/v1/session", target)).then(
      (answer) => answer.status !== 404,
      () => {
        native = undefined;
        return false;
      },
    );
    return native;
  };

  return async (req, res, next) => {
    if (!req.url?.startsWith("/api/")) return next();
    if (await hasSessions()) return forward(target, req, res, {});
    const id = /(?:^|; )proctor_session=([^;]+)/.exec(req.headers.cookie ?? "")?.[1];
    const session = id ? sessions.get(id) : undefined;
    if (req.url === "/api/v1/session") {
      if (req.method === "POST") return signIn(req, res);
      if (!session) return fail(res, 401, "unauthenticated", "you are not signed in");
      if (req.method === "DELETE") {
        sessions.delete(id ?? "");
        res.writeHead(204, { "set-cookie": `${COOKIE}=; Path=/; Max-Age=0` });
        return res.end();
      }
      return answerWho(res, session, {});
    }
    if (!session) return fail(res, 401, "unauthenticated", "you are not signed in");
    if (req.method !== "GET" && req.headers["x-proctor-csrf"] !== session.csrf) {
      return fail(res, 403, "permission_denied", "the header x-proctor-csrf is missing or wrong");
    }
    return forward(target, req, res, { authorization: `Bearer ${session.token}` });
  };

  /** @param {http.IncomingMessage} req @param {http.ServerResponse} res */
  async function signIn(req, res) {
    let text = "";
    for await (const chunk of req) text += chunk;
    const { token } = JSON.parse(text || "{}");
    if (!token) return fail(res, 401, "unauthenticated", "this server takes only tokens");
    const id = randomUUID();
    const session = { token: String(token), csrf: randomUUID() };
    sessions.set(id, session);
    return answerWho(res, session, { "set-cookie": `${COOKIE}=${id}; Path=/; HttpOnly; SameSite=Strict` });
  }

  /** @param {http.ServerResponse} res @param {{token: string, csrf: string}} session @param {Record<string, string>} headers */
  async function answerWho(res, session, headers) {
    try {
      const answer = await fetch(new URL("/api/v1/whoami", target), {
        headers: { authorization: `Bearer ${session.token}` },
      });
      const body = await answer.json();
      const ok = answer.ok ? { ...body, csrf: session.csrf } : body;
      res.writeHead(answer.status, { "content-type": "application/json", ...(answer.ok ? headers : {}) });
      res.end(JSON.stringify(ok));
    } catch {
      fail(res, 503, "unavailable", "the server cannot be reached");
    }
  }
}

/** @param {http.ServerResponse} res @param {number} status @param {string} code @param {string} message */
function fail(res, status, code, message) {
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify({ error: { code, message } }));
}

/** @param {URL} target @param {http.IncomingMessage} req @param {http.ServerResponse} res @param {Record<string, string>} headers */
function forward(target, req, res, headers) {
  const upstream = http.request(
    {
      hostname: target.hostname,
      port: target.port,
      path: req.url,
      method: req.method,
      headers: { ...req.headers, ...headers, host: target.host },
    },
    (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(res);
    },
  );
  upstream.on("error", () => {
    if (res.headersSent) res.destroy();
    else fail(res, 503, "unavailable", "the server cannot be reached");
  });
  res.on("close", () => upstream.destroy());
  req.pipe(upstream);
}

import { vi } from "vitest";

type Answer = { status?: number; body: unknown; headers?: Record<string, string> };
type Handler = (request: Request, url: URL) => Answer | Promise<Answer>;

/** Answers fetch from a table of `METHOD /path`; records what was asked. */
export function fakeApi(routes: Record<string, Handler>) {
  const asked: { method: string; url: URL; headers: Headers; body: unknown }[] = [];
  vi.stubGlobal("fetch", async (input: RequestInfo | URL, init?: RequestInit) => {
    const request = new Request(input, init);
    const url = new URL(request.url);
    const text = request.method === "GET" ? "" : await request.clone().text();
    asked.push({
      method: request.method,
      url,
      headers: request.headers,
      body: text ? JSON.parse(text) : null,
    });
    const handler = routes[`${request.method} ${url.pathname}`];
    const answer = handler
      ? await handler(request, url)
      : { status: 404, body: { error: { code: "not_found", message: `no ${url.pathname}` } } };
    return new Response(answer.status === 204 ? null : JSON.stringify(answer.body), {
      status: answer.status ?? 200,
      headers: { "content-type": "application/json", ...answer.headers },
    });
  });
  return asked;
}

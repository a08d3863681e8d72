import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** What the server answered instead of data, or why there was no answer at all (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly field: string | null,
    readonly requestId: string | null,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

let csrf = "";
let language = "en";
const listeners = new Set<() => void>();

export function setCsrf(value: string) {
  csrf = value;
}

/** Messages of the server come in this language. */
export function setApiLanguage(value: string) {
  language = value;
}

/** Calls back whenever an answer says that nobody is signed in (any more). */
export function onSignedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

async function send(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  request.headers.set("accept-language", language);
  if (request.method !== "GET") request.headers.set("x-proctor-csrf", csrf);
  let answer: Response;
  try {
    answer = await fetch(request);
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new ApiError(0, "unreachable", "the server cannot be reached", null, null);
  }
  if (answer.ok) return answer;
  if (answer.status === 401) for (const listener of listeners) listener();
  throw await errorOf(answer);
}

async function errorOf(answer: Response): Promise<ApiError> {
  const requestId = answer.headers.get("x-request-id") ?? answer.headers.get("x-bkapi-request-id");
  const body = (await answer.json().catch(() => null)) as Partial<Schemas["ErrorBody"]> | null;
  const detail = body?.error;
  const message = detail?.message ?? (answer.statusText || `HTTP ${answer.status}`);
  return new ApiError(answer.status, detail?.code ?? "unexpected", message, detail?.field ?? null, requestId);
}

/** The typed client; a failure is thrown as an ApiError. */
export const api = createClient<paths>({
  baseUrl: globalThis.location?.origin ?? "",
  fetch: (request: Request) => send(request),
});

/** The data of an answer; failures were thrown before. */
export async function data<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

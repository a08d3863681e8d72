import { queryOptions } from "@tanstack/react-query";
import { ApiError, raw, type Schemas, setCsrf } from "./client";

export type Session = Schemas["Who"] & { csrf: string };

export type Credentials = { token: string } | { user: string; password: string } | { link: string };

async function keep(answer: Response): Promise<Session> {
  const session = (await answer.json()) as Session;
  setCsrf(session.csrf);
  return session;
}

/** Who is signed in; null when nobody is. */
export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async (): Promise<Session | null> => {
    try {
      return await keep(await raw("/api/v1/session"));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 5 * 60_000,
  retry: (count, error) => !(error instanceof ApiError && error.status > 0) && count < 3,
});

export async function signIn(credentials: Credentials): Promise<Session> {
  const body = JSON.stringify(credentials);
  return keep(
    await raw("/api/v1/session", { method: "POST", body, headers: { "content-type": "application/json" } }),
  );
}

export async function signOut(): Promise<void> {
  await raw("/api/v1/session", { method: "DELETE" });
  setCsrf("");
}

import { queryOptions } from "@tanstack/react-query";
import { ApiError, api, data, type Schemas, setCsrf } from "./client";

export type Session = Schemas["Session"];

export type Credentials = { token: string } | { user: string; password: string } | { link: string };

function keep(session: Session): Session {
  setCsrf(session.csrf);
  return session;
}

/** Who is signed in; null when nobody is. */
export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async (): Promise<Session | null> => {
    try {
      return keep(await data(api.GET("/api/v1/session")));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 5 * 60_000,
  retry: (count, error) => !(error instanceof ApiError && error.status > 0) && count < 3,
});

export async function signIn(credentials: Credentials): Promise<Session> {
  return keep(await data(api.POST("/api/v1/session", { body: credentials })));
}

/** Closes the session; throws where it may still be open. One that is gone already is closed. */
export async function signOut(): Promise<void> {
  try {
    await api.DELETE("/api/v1/session");
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
  setCsrf("");
}

/** Changes the password of whoever is signed in. */
export function changePassword(current: string, password: string) {
  return data(api.PUT("/api/v1/session/password", { body: { current, password } }));
}

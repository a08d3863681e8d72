import { useCallback } from "react";
import { useSearchParams } from "react-router";

/** One value in the query of the address; the default is left out, so that addresses stay short. */
export function useUrlValue(name: string, fallback = ""): [string, (value: string | undefined) => void] {
  const [params, setParams] = useSearchParams();
  const set = useCallback(
    (value: string | undefined) => {
      setParams(
        (now) => {
          const next = new URLSearchParams(now);
          if (value === undefined || value === "" || value === fallback) next.delete(name);
          else next.set(name, value);
          return next;
        },
        { replace: true },
      );
    },
    [name, fallback, setParams],
  );
  return [params.get(name) ?? fallback, set];
}

/** Forgets some values of the query at once. */
export function useClearUrl(names: readonly string[]): () => void {
  const [, setParams] = useSearchParams();
  return () =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const name of names) next.delete(name);
        return next;
      },
      { replace: true },
    );
}

/** An address with the given values in its query; empty ones are left out. */
export function linkTo(path: string, query: Record<string, string | number | undefined | null>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

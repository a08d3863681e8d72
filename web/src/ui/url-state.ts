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

/** A whole number in the query of the address; anything else there is as if it were absent. */
export function useUrlNumber(name: string): number | undefined {
  const [text] = useUrlValue(name);
  return /^[0-9]{1,15}$/.test(text) ? Number(text) : undefined;
}

/** The last second that a date field shows, whatever the zone. */
export const LAST_SECS = Date.UTC(9999, 11, 30) / 1000;

/** An instant in the query of the address, in seconds; what is later than any calendar is its end. */
export function useUrlTime(name: string): number | undefined {
  const secs = useUrlNumber(name);
  return secs === undefined ? undefined : Math.min(secs, LAST_SECS);
}

/** Sets some values of the query at once; those that are undefined are forgotten. */
export function useSetUrl(): (values: Record<string, string | number | undefined>) => void {
  const [, setParams] = useSearchParams();
  return (values) =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const [name, value] of Object.entries(values)) {
          if (value === undefined) next.delete(name);
          else next.set(name, String(value));
        }
        return next;
      },
      { replace: true },
    );
}

/** Forgets some values of the query at once. */
export function useClearUrl(names: readonly string[]): () => void {
  const set = useSetUrl();
  return () => set(Object.fromEntries(names.map((name) => [name, undefined])));
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

import { useMemo } from "react";
import { useSearchParams } from "react-router";
import { lifetimes, type ProcessFilter, type ProcessSort, troubles } from "@/api/processes";

export const filterNames = [
  "namespace",
  "name",
  "selector",
  "phase",
  "business",
  "host",
  "q",
  "lifetime",
  "trouble",
  "cordoned",
] as const;

const sorts: readonly string[] = ["name", "cpu", "memory", "restarts", "started"];

/** The filter that the address asks for. */
export function parseFilter(params: URLSearchParams): ProcessFilter {
  const text = (name: string) => params.get(name)?.trim() || undefined;
  const business = Number(text("business"));
  const sort = text("sort");
  return {
    namespace: text("namespace"),
    name: text("name"),
    selector: text("selector"),
    phase: text("phase"),
    q: text("q"),
    lifetime: lifetimes.find((known) => known === text("lifetime")),
    trouble: troubles.find((known) => known === text("trouble")),
    cordoned: text("cordoned") === undefined ? undefined : text("cordoned") === "true",
    host: text("host"),
    business: text("business") && Number.isInteger(business) ? business : undefined,
    sort: sort && sorts.includes(sort) ? (sort as ProcessSort) : undefined,
  };
}

/** The filter as the query of an address; in which order the rows stand is no part of it. */
export function filterQuery(filter: ProcessFilter): string {
  const values = filterNames.flatMap((name) => {
    const value = filter[name];
    return value === undefined ? [] : [[name, String(value)]];
  });
  return new URLSearchParams(values).toString();
}

export function useFilter(): ProcessFilter {
  const [params] = useSearchParams();
  const text = params.toString();
  return useMemo(() => parseFilter(new URLSearchParams(text)), [text]);
}

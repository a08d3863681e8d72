import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "@/api/client";

/** A row of a plan, as all of them are: what a change would do on one host. */
export type PlannedRow = { host: string; online?: boolean | null; refused?: Schemas["Refusal"] | null };

/** When a change takes effect on a host, if it does. */
export const changeFates = ["now", "later", "same", "forbidden", "refused"] as const;
export type ChangeFate = (typeof changeFates)[number];

const FORBIDDEN = 403;

export function changeFate(row: PlannedRow, isSame = false): ChangeFate {
  if (row.refused) return row.refused.code === FORBIDDEN ? "forbidden" : "refused";
  if (isSame) return "same";
  return row.online === false ? "later" : "now";
}

/** Whether the change does something there. */
export const takesEffect = (fate: ChangeFate) => fate === "now" || fate === "later";

/** The plan of a change, asked for anew whenever the dialog opens or the change is another one. */
export function useChangePlan<Row extends PlannedRow>(
  key: unknown,
  ask: ((signal: AbortSignal) => Promise<Row[]>) | undefined,
) {
  return useQuery({
    queryKey: ["change-plan", key],
    queryFn: ({ signal }) => ask?.(signal) ?? [],
    enabled: ask !== undefined,
    staleTime: 0,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });
}

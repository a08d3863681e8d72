import type { Overview } from "@/api/overview";
import { linkTo } from "@/ui/url-state";

/** The list of what the overview counts: without hosts in maintenance, where there are any. */
export function processesPath({ processes }: Overview, filter: { phase?: string; trouble?: string }): string {
  return linkTo("/processes", { ...filter, cordoned: processes.cordoned ? "false" : undefined });
}

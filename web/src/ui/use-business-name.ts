import { useQuery } from "@tanstack/react-query";
import { useCallback } from "react";
import { businessesQuery } from "@/api/hosts";

/** The name of a business by its id; empty for none. */
export function useBusinessName(): (id: number | null | undefined) => string {
  const businesses = useQuery(businessesQuery).data;
  return useCallback(
    (id) => (id == null ? "" : (businesses?.find((business) => business.id === id)?.name ?? String(id))),
    [businesses],
  );
}

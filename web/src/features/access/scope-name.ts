import { useQuery } from "@tanstack/react-query";
import { businessesQuery, businessSetsQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";

/** A scope with the name of what its number stands for. */
export function useScopeName(): (scope: string) => string {
  const { terms } = useMessages();
  const businesses = useQuery(businessesQuery).data ?? [];
  const sets = useQuery(businessSetsQuery).data ?? [];
  return (scope) => {
    if (scope === "everything") return terms.scopeEverything;
    const [kind, id] = scope.split(":");
    const list = kind === "business" ? businesses : kind === "set" ? sets : [];
    const name = list.find((each) => String(each.id) === id)?.name;
    return name ? `${scope} (${name})` : scope;
  };
}

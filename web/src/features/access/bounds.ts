import { useMessages } from "@/settings/context";

type Bounded = { allow_users?: string[] | null; allow_roots?: string[] | null };

/** What a binding is limited to, in words: as which users, below which paths. */
export function useBounds(): (bounded: Bounded) => string {
  const { access, common } = useMessages();
  return ({ allow_users, allow_roots }) => {
    const bounds = [];
    if (allow_users?.length) bounds.push(access.bindings.asUsers(common.list(allow_users)));
    if (allow_roots?.length) bounds.push(access.bindings.belowRoots(common.list(allow_roots)));
    return common.list(bounds);
  };
}

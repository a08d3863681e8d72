import { Tooltip } from "antd";
import { createContext, type ReactNode, useContext } from "react";
import type { OperationClass } from "@/api/access";
import type { Session } from "@/api/session";
import { useMessages } from "@/settings/context";

const Context = createContext<Session | null>(null);

export const SessionProvider = Context;

export function useSession(): Session {
  const session = useContext(Context);
  if (!session) throw new Error("useSession outside of SessionProvider");
  return session;
}

/** Where something is to be done: any part that is known. */
export type Place = { namespace?: string; business?: number | null; cloud?: number };

/**
 * Whether the session has a class of operations for a place; without a place: anywhere at all. Only who administers
 * everything administers anything.
 */
export function hasRight(session: Session, need: OperationClass, place?: Place): boolean {
  const scopes = session.allowed.find((allowed) => allowed.class === need)?.scopes ?? [];
  if (scopes.includes("everything")) return true;
  if (need === "admin") return false;
  if (!place) return scopes.length > 0;
  return scopes.some((scope) => {
    const [kind, value] = [scope.slice(0, scope.indexOf(":")), scope.slice(scope.indexOf(":") + 1)];
    if (kind === "namespace") return value === place.namespace;
    if (kind === "business") return value === String(place.business ?? "");
    if (kind === "cloud") return value === String(place.cloud ?? "");
    return false;
  });
}

export function useRight(need: OperationClass, place?: Place): boolean {
  return hasRight(useSession(), need, place);
}

/** A host is written `CLOUD:IP`. */
const cloudOf = (host: string) => Number(host.slice(0, host.indexOf(":")));

export function placeOf(namespace: string, at: { host: string; business?: number | null }): Place {
  return { namespace, business: at.business, cloud: cloudOf(at.host) };
}

/** Where instances are, each place once. */
export function placesOf(
  namespace: string,
  instances: readonly { host: string; business?: number | null }[],
): Place[] {
  const places = instances.map((instance) => placeOf(namespace, instance));
  return [...new Map(places.map((place) => [`${place.business} ${place.cloud}`, place])).values()];
}

type Props = {
  need: OperationClass;
  /** Of several places, one that the viewer may use is enough: the plan tells who is refused. */
  place?: Place | readonly Place[];
  where?: string;
  /** What is missing, where it is more than a right in a place. */
  reason?: string;
  children: (isAllowed: boolean) => ReactNode;
};

/** Renders a control that is disabled, and says why, where the viewer may not use it. */
export function Guarded({ need, place, where = "", reason, children }: Props) {
  const { states, terms } = useMessages();
  const session = useSession();
  const places = place === undefined ? [undefined] : [place].flat();
  const isAllowed = !reason && places.some((each) => hasRight(session, need, each));
  if (isAllowed) return children(true);
  return (
    <Tooltip title={reason ?? states.needRight(terms.right[need], where)} trigger={["hover", "focus"]}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a disabled button takes no focus, its reason must */}
      <span className="guarded" tabIndex={0}>
        {children(false)}
      </span>
    </Tooltip>
  );
}

import type { Binding, OperationClass, Role } from "@/api/access";

export type Grant = { subject: string; role: string; scope: string };

/** Bindings that give a class, of one subject or of all. */
export function grantsOf(
  bindings: Binding[],
  roles: Role[],
  right: OperationClass,
  subject?: string,
): Grant[] {
  const giving = new Set(roles.filter((role) => role.classes.includes(right)).map((role) => role.name));
  return bindings.filter((binding) => giving.has(binding.role) && (!subject || binding.subject === subject));
}

/** Whether a grant's scope covers another one; sets cover their members. */
export function covers(scope: string, wanted: string, sets: { id: number; members: number[] }[]): boolean {
  if (scope === "everything" || scope === wanted) return true;
  const [kind, id] = scope.split(":");
  const [wantedKind, wantedId] = wanted.split(":");
  if (kind !== "set" || wantedKind !== "business") return false;
  return sets.some((set) => String(set.id) === id && set.members.includes(Number(wantedId)));
}

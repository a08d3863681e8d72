import type { Host } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { type Tone, ToneIcon } from "@/ui/phase";

type State = "online" | "returning" | "revoked" | "away";

const tones: Record<State, Tone> = {
  online: "running",
  returning: "changing",
  revoked: "failed",
  away: "warning",
};

function stateOf(host: Pick<Host, "online" | "returning" | "revoked_at">): State {
  if (host.returning) return "returning";
  if (host.online) return "online";
  return host.revoked_at ? "revoked" : "away";
}

export function Presence({ host }: { host: Pick<Host, "online" | "returning" | "revoked_at"> }) {
  const { hosts: text } = useMessages();
  const state = stateOf(host);
  return (
    <span
      className={`phase tone-${tones[state]}`}
      title={state === "returning" ? text.returningHelp : undefined}
    >
      <ToneIcon tone={tones[state]} />
      {text[state]}
    </span>
  );
}

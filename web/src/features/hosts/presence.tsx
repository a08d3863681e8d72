import { ToolOutlined } from "@ant-design/icons";
import type { Host, HostStatus } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { type Tone, ToneIcon } from "@/ui/phase";

type State = "returning" | Exclude<HostStatus, "cordoned">;

const tones: Record<State, Tone> = {
  online: "running",
  returning: "changing",
  revoked: "failed",
  away: "warning",
  unreachable: "idle",
  awaits_approval: "warning",
};

type Shown = Pick<Host, "online" | "returning" | "unreachable" | "revoked_at" | "awaits_approval" | "cordon">;

function stateOf(host: Shown): State {
  if (host.awaits_approval) return "awaits_approval";
  if (host.returning) return "returning";
  if (host.online) return "online";
  if (host.revoked_at) return "revoked";
  return host.unreachable ? "unreachable" : "away";
}

export function Presence({ host }: { host: Shown }) {
  const { hosts: text } = useMessages();
  const state = stateOf(host);
  const help = { returning: text.returningHelp, unreachable: text.unreachableHelp };
  return (
    <span
      className={`phase tone-${tones[state]}`}
      title={state === "returning" || state === "unreachable" ? help[state] : undefined}
    >
      <ToneIcon tone={tones[state]} />
      {state === "returning" ? text.returning : text.state[state]}
      {host.cordon && (
        <ToolOutlined
          className="tone-warning"
          role="img"
          aria-label={text.maintenance.title}
          title={`${text.maintenance.title}: ${host.cordon.reason}`}
        />
      )}
    </span>
  );
}

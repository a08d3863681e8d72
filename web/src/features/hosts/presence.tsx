import { ToolOutlined } from "@ant-design/icons";
import type { Host } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { type Tone, ToneIcon } from "@/ui/phase";

type State = "online" | "returning" | "revoked" | "away" | "awaitsApproval";

const tones: Record<State, Tone> = {
  online: "running",
  returning: "changing",
  revoked: "failed",
  away: "warning",
  awaitsApproval: "warning",
};

type Shown = Pick<Host, "online" | "returning" | "revoked_at" | "awaits_approval" | "cordon">;

function stateOf(host: Shown): State {
  if (host.awaits_approval) return "awaitsApproval";
  if (host.returning) return "returning";
  if (host.online) return "online";
  return host.revoked_at ? "revoked" : "away";
}

export function Presence({ host }: { host: Shown }) {
  const { hosts: text } = useMessages();
  const state = stateOf(host);
  return (
    <span
      className={`phase tone-${tones[state]}`}
      title={state === "returning" ? text.returningHelp : undefined}
    >
      <ToneIcon tone={tones[state]} />
      {text[state]}
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

import type { Host } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { ToneIcon } from "@/ui/phase";

export function Presence({ host }: { host: Pick<Host, "online" | "revoked_at"> }) {
  const { hosts: text } = useMessages();
  const tone = host.online ? "running" : host.revoked_at ? "failed" : "warning";
  const label = host.online ? text.online : host.revoked_at ? text.revoked : text.away;
  return (
    <span className={`phase tone-${tone}`}>
      <ToneIcon tone={tone} />
      {label}
    </span>
  );
}

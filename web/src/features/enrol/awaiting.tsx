import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { awaitingQuery } from "@/api/hosts";
import { ApproveButton } from "@/features/hosts/maintenance";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { Panel } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { Time } from "@/ui/time";

/** New hosts that nobody has let in yet; nothing where there are none. */
export function Awaiting() {
  const { enrol: text } = useMessages();
  const hosts = useQuery(awaitingQuery).data ?? [];
  if (hosts.length === 0) return null;
  return (
    <Panel title={text.awaiting}>
      <ul className="panel-body joined">
        {hosts.map((host) => (
          <li key={host.agent}>
            <Link to={hostPath(host.host)} className="mono">
              {host.host}
            </Link>
            <span className="grow truncate">{host.facts?.hostname}</span>
            <CopyText text={host.key_fingerprint ?? ""} />
            <span className="muted">
              <Time at={host.enrolled_at} />
            </span>
            <ApproveButton host={host} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

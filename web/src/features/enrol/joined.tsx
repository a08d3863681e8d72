import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { joinTokensQuery } from "@/api/access";
import { allHostsQuery } from "@/api/hosts";
import { Presence } from "@/features/hosts/presence";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Time } from "@/ui/time";
import type { Made } from "./enrol-page";

/** Hosts that enrolled since the token was made; the server does not tell by which token. */
export function Joined({ made }: { made: Made | null }) {
  const { enrol: text } = useMessages();
  const number = useNumbers();
  const tokens = useQuery(joinTokensQuery).data;
  const hosts = useQuery({ ...allHostsQuery, refetchInterval: made ? 3000 : 15_000 }).data?.rows ?? [];
  const token = tokens?.find((each) => each.id === made?.token.id);
  const joined = made ? hosts.filter((host) => host.enrolled_at * 1000 >= made.at - 2000) : [];
  return (
    <div className="panel-body">
      {token && <p className="enrol-note">{text.joined(number(token.used), number(token.uses))}</p>}
      {joined.length === 0 && <p className="muted enrol-note">{made ? text.waiting : "–"}</p>}
      <ul className="joined">
        {joined.slice(0, 100).map((host) => (
          <li key={host.agent}>
            <Link to={hostPath(host.host)} className="mono">
              {host.host}
            </Link>
            <span className="grow truncate">{host.facts?.hostname}</span>
            <Presence host={host} />
            <span className="muted">
              <Time at={host.enrolled_at} />
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { joinTokensQuery } from "@/api/access";
import { joinedQuery } from "@/api/hosts";
import { Presence } from "@/features/hosts/presence";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Time } from "@/ui/time";
import type { Made } from "./enrol-page";

/** The hosts that enrolled with the token, as they come. */
export function Joined({ made }: { made: Made | null }) {
  const { enrol: text } = useMessages();
  const number = useNumbers();
  const tokens = useQuery(joinTokensQuery).data;
  const id = made?.token.id ?? "";
  const joined = useQuery({ ...joinedQuery(id), enabled: id !== "" }).data ?? [];
  const token = tokens?.find((each) => each.id === id);
  return (
    <div className="panel-body">
      {token && <p className="enrol-note">{text.joined(number(token.used), number(token.uses))}</p>}
      {joined.length === 0 && <p className="muted enrol-note">{made ? text.waiting : text.joinedBefore}</p>}
      <ul className="joined">
        {joined.map((host) => (
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

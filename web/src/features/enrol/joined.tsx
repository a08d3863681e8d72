import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { joinTokensQuery } from "@/api/access";
import { joinedQuery } from "@/api/hosts";
import { Presence } from "@/features/hosts/presence";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Failure } from "@/ui/states";
import { Time } from "@/ui/time";
import type { Made } from "./enrol-page";

/** The hosts that enrolled with the token, as they come. */
export function Joined({ made }: { made: Made | null }) {
  const { enrol: text } = useMessages();
  const number = useNumbers();
  const tokens = useQuery(joinTokensQuery).data;
  const id = made?.token.id ?? "";
  const query = useQuery({ ...joinedQuery(id), enabled: id !== "" });
  const joined = query.data ?? [];
  const token = tokens?.find((each) => each.id === id);
  return (
    <div className="panel-body">
      {token && <p className="enrol-note">{text.joined(number(token.used), number(token.uses))}</p>}
      {query.error && !query.data ? (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      ) : (
        joined.length === 0 && <p className="muted enrol-note">{made ? text.waiting : text.joinedBefore}</p>
      )}
      {joined.length > 0 && (
        <div className="row">
          <span className="muted grow">
            {token && token.used > joined.length ? text.joinedCut(number(joined.length)) : ""}
          </span>
          <ExportButton
            name="joined"
            rows={joined}
            columns={["host", "agent", "online", "business", "enrolled_at"]}
          />
        </div>
      )}
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

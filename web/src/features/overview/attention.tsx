import { Link } from "react-router";
import type { Attention as Concern, Overview } from "@/api/overview";
import type { Messages } from "@/messages";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { hostPath, processPath } from "@/ui/paths";
import { Badge, type Tone } from "@/ui/phase";
import { Time } from "@/ui/time";
import { linkTo } from "@/ui/url-state";

const tones: Record<Concern["severity"], Tone> = { critical: "failed", warning: "warning", notice: "idle" };

/** What somebody should look at, the worst first; the same trouble on many hosts is one line. */
export function Attention({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const more = data.attention_total - data.attention.length;
  return (
    <section className="panel" aria-label={text.attention}>
      <div className="panel-head">
        <h2 className="grow">{text.attention}</h2>
      </div>
      {data.attention.length === 0 ? (
        <p className="muted panel-body overview-quiet">{text.allWellText}</p>
      ) : (
        <ol className="concerns">
          {data.attention.map((concern) => (
            <Line key={`${concern.kind} ${concern.process ?? ""}`} concern={concern} />
          ))}
        </ol>
      )}
      {more > 0 && <p className="muted panel-body overview-note">{text.more(number(more))}</p>}
    </section>
  );
}

function Line({ concern }: { concern: Concern }) {
  const messages = useMessages();
  const { overview: text } = messages;
  const number = useNumbers();
  const reason = reasonOf(concern, messages);
  return (
    <li>
      <Badge tone={tones[concern.severity]}>{text.kind[concern.kind]}</Badge>
      <Link to={pathOf(concern)} className="truncate concern-what" title={concern.process ?? undefined}>
        {concern.process ?? concern.host ?? text.hostCount(number(concern.count))}
      </Link>
      <span className="muted">{concern.process ? text.onHosts(number(concern.count)) : ""}</span>
      <span className="concern-why grow" title={reason}>
        {reason}
      </span>
      {concern.since != null && (
        <span className="muted">
          <Time at={concern.since} />
        </span>
      )}
    </li>
  );
}

/** Where it can be looked into. */
export function pathOf(concern: Concern): string {
  if (concern.process) return processPath(concern.process);
  if (concern.host) return hostPath(concern.host);
  return concern.kind in listOf ? linkTo("/hosts", listOf[concern.kind as keyof typeof listOf]) : "/hosts";
}

/** The hosts that a line counts. */
const listOf = {
  host_away: { state: "away" },
  host_unreachable: { state: "unreachable" },
  awaits_approval: { state: "awaits_approval" },
  certificate_ends: { trouble: "certificate_ends" },
  clock_off: { trouble: "clock_off" },
  agent_outdated: { trouble: "agent_outdated" },
} as const;

/** Why; of hosts also which, as far as there is room. */
export function reasonOf(concern: Concern, { terms }: Messages): string {
  const reason = terms.told(ofReason(concern));
  if (concern.process || concern.count === 1) return reason;
  const named = concern.hosts.join(", ") + (concern.count > concern.hosts.length ? ", …" : "");
  return [reason, named].filter(Boolean).join(": ");
}

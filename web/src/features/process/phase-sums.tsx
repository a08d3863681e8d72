import { type Process, phases } from "@/api/processes";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { ToneIcon, toneOf } from "@/ui/phase";
import { Time } from "@/ui/time";

/** How many hosts have the process in which phase, as a bar and as numbers, and the worst reason. */
export function PhaseSums({ instances }: { instances: Process[] }) {
  const { process: text, terms } = useMessages();
  const number = useNumbers();
  const sums = new Map<string, number>();
  for (const instance of instances) {
    const key = instance.online ? instance.phase : "away";
    sums.set(key, (sums.get(key) ?? 0) + 1);
  }
  const parts = [
    ...phases.map((phase) => ({ key: phase as string, tone: toneOf(phase), label: terms.phase[phase] })),
    { key: "away", tone: "idle" as const, label: terms.away },
  ].filter((part) => sums.has(part.key));
  const only = instances.length === 1 ? instances[0] : undefined;
  const worst =
    instances.find((instance) => instance.phase === "failed" && instance.reason) ??
    instances.find((instance) => instance.reason);
  return (
    <div className="phase-sums">
      <span className="phase-bar" aria-hidden="true">
        {parts.map((part) => (
          <span key={part.key} className={`fill-${part.tone}`} style={{ flexGrow: sums.get(part.key) }} />
        ))}
      </span>
      <div className="row wrap">
        {parts.map((part) => (
          <span key={part.key} className={`phase tone-${part.tone}`}>
            <ToneIcon tone={part.tone} hollow={part.key === "away" || part.key === "unknown"} />
            <b>{number(sums.get(part.key) ?? 0)}</b> {part.label}
          </span>
        ))}
        <span className="muted">
          {instances.length === 1 ? text.oneHost : text.hosts(number(instances.length))}
        </span>
        {only && (only.pid ? only.started_at : only.phase_since) ? (
          <span className="muted">
            {only.pid ? text.since : text.inPhaseSince}{" "}
            <Time at={only.pid ? only.started_at : only.phase_since} />
          </span>
        ) : null}
        {!only && <WorstSince instances={instances} />}
        <Schedule instances={instances} />
        {worst && (
          <span className="truncate grow" title={terms.told(ofReason(worst))}>
            {worst.host}: {terms.told(ofReason(worst))}
          </span>
        )}
      </div>
    </div>
  );
}

/** Since when the first and the last of the hosts in the worst phase are in it. */
function WorstSince({ instances }: { instances: Process[] }) {
  const { process: text, terms } = useMessages();
  const phase = phases.find((each) => instances.some((one) => one.online && one.phase === each));
  const since = instances
    .filter((one) => one.online && one.phase === phase && one.phase_since)
    .map((one) => one.phase_since ?? 0);
  if (!phase || since.length === 0) return null;
  const [first, last] = [Math.min(...since), Math.max(...since)];
  return (
    <span className="muted">
      {terms.phase[phase]}
      {last > first ? (
        <>
          : {text.sinceFirst} <Time at={first} />, {text.sinceLast} <Time at={last} />
        </>
      ) : (
        <>
          {" "}
          {text.inPhaseSince} <Time at={first} />
        </>
      )}
    </span>
  );
}

/** When a periodic process runs next, by which schedule, and how many copies a host has. */
function Schedule({ instances }: { instances: Process[] }) {
  const { process: text, common } = useMessages();
  const policy = instances[0]?.spec?.policy;
  const next = instances.map((instance) => instance.snapshot?.next_run_at ?? 0).filter((at) => at > 0);
  const rule = policy?.crontab_rule ?? (policy?.cycle ? text.every(common.seconds(policy.cycle)) : "");
  return (
    <>
      {policy?.lifetime === "periodic" && (
        <span>
          {next.length > 0 ? (
            <>
              {text.instance.nextRun} <Time at={Math.min(...next)} />
            </>
          ) : (
            <span className="muted">{text.noNextRun}</span>
          )}{" "}
          {rule && <code className="muted">{rule}</code>}
        </span>
      )}
      {policy && policy.instances > 1 && (
        <span className="muted">{text.copies(String(policy.instances))}</span>
      )}
    </>
  );
}

import type { Schemas } from "@/api/client";
import type { Task } from "@/api/tasks";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Badge, type Tone } from "@/ui/phase";

type Rollout = Schemas["RolloutView"];
type Step = { label: string; from: number; to: number };

const STEPS_MAX = 60;

const tones: Record<Rollout["state"], Tone> = {
  running: "changing",
  paused: "warning",
  failed: "failed",
  cancelled: "idle",
  done: "running",
};

/** The canary and the batches behind it. */
export function stepsOf(
  rollout: Rollout,
  total: number,
  labels: { canary: string; batch: (n: number) => string },
): Step[] {
  const steps: Step[] = [];
  let from = 0;
  if (rollout.canary > 0) {
    from = Math.min(rollout.canary, total);
    steps.push({ label: labels.canary, from: 0, to: from });
  }
  const size = Math.max(1, rollout.max_parallel);
  for (let batch = 1; from < total; batch += 1) {
    const to = Math.min(total, from + size);
    steps.push({ label: labels.batch(batch), from, to });
    from = to;
  }
  return steps.length > STEPS_MAX ? merged(steps) : steps;
}

/** Neighbours become one, so that there are at most `STEPS_MAX`. */
function merged(steps: Step[]): Step[] {
  const size = Math.ceil(steps.length / STEPS_MAX);
  const groups: Step[] = [];
  for (let at = 0; at < steps.length; at += size) {
    const first = steps[at];
    const last = steps[Math.min(at + size, steps.length) - 1];
    if (!first || !last) break;
    const label = first === last ? first.label : `${first.label} – ${last.label}`;
    groups.push({ label, from: first.from, to: last.to });
  }
  return groups;
}

export function RolloutSteps({ task, rollout }: { task: Task; rollout: Rollout }) {
  const { tasks: text, terms, common } = useMessages();
  const number = useNumbers();
  const steps = stepsOf(rollout, task.total, text);
  return (
    <section className="panel rollout" aria-label={text.rolling}>
      <div className="row wrap">
        <Badge tone={tones[rollout.state]}>{terms.rollout[rollout.state]}</Badge>
        <span>{text.released(number(rollout.released), number(task.total))}</span>
        <span className="muted">
          {text.maxParallel}: {number(rollout.max_parallel)} · {text.maxFailures}:{" "}
          {number(rollout.max_failures)} · {text.waitHealthy}: {rollout.wait_healthy ? common.yes : common.no}
        </span>
      </div>
      {rollout.state === "paused" && (
        <p className="rollout-note">
          {rollout.canary > 0 && rollout.released === rollout.canary
            ? text.pausedAfterCanary
            : text.pausedByHand}
        </p>
      )}
      {rollout.reason && <p className="rollout-note">{terms.told(ofReason(rollout))}</p>}
      <ol className="rollout-steps" aria-label={text.batches}>
        {steps.map((step) => (
          <li
            key={step.from}
            className={stateOf(step, rollout.released)}
            style={{ flexGrow: step.to - step.from }}
            title={`${step.label}: ${number(step.from + 1)}–${number(step.to)}`}
          >
            <span className="visually-hidden">{step.label}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function stateOf(step: Step, released: number): string {
  if (released >= step.to) return "is-released";
  return released > step.from ? "is-partial" : "";
}

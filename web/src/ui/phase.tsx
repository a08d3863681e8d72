import type { Phase as PhaseName } from "@/api/processes";
import { useMessages } from "@/settings/context";
import "./phase.css";

export type Tone = "running" | "changing" | "failed" | "warning" | "idle";

export function toneOf(phase: PhaseName): Tone {
  switch (phase) {
    case "running":
      return "running";
    case "starting":
    case "stopping":
      return "changing";
    case "waiting":
      return "warning";
    case "failed":
      return "failed";
    case "stopped":
    case "unknown":
      return "idle";
  }
}

/** Each tone has a shape of its own, so that colour is never alone. */
export function ToneIcon({ tone, hollow }: { tone: Tone; hollow?: boolean }) {
  return (
    <svg className={`tone-icon tone-${tone}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      {shape(tone, hollow ?? false)}
    </svg>
  );
}

function shape(tone: Tone, hollow: boolean) {
  switch (tone) {
    case "running":
      return <circle cx="6" cy="6" r="4" />;
    case "changing":
      return <path d="M6 1.5A4.5 4.5 0 1 0 10.5 6H8.4A2.4 2.4 0 1 1 6 3.6z M6 .6 9.6 3 6 5.4z" />;
    case "failed":
      return <path d="M6 1 11.4 10.6H.6z" />;
    case "warning":
      return (
        <path
          d="M6 1a5 5 0 1 0 0 10A5 5 0 0 0 6 1m.6 5.6H5.4V3h1.2v3.6M5.4 7.6h1.2v1.2H5.4z"
          fillRule="evenodd"
        />
      );
    case "idle":
      return hollow ? (
        <circle
          cx="6"
          cy="6"
          r="3.6"
          fill="none"
          stroke="currentColor"
          strokeWidth="1.6"
          strokeDasharray="2 1.6"
        />
      ) : (
        <rect x="2" y="2" width="8" height="8" rx="1" />
      );
  }
}

type Props = { phase: PhaseName; isOnline?: boolean };

/** Where a process stands; what was last seen of a host that is away is shown in grey. */
export function Phase({ phase, isOnline = true }: Props) {
  const { terms } = useMessages();
  const tone = isOnline ? toneOf(phase) : "idle";
  return (
    <span className={`phase tone-${tone}`} title={isOnline ? undefined : terms.away}>
      <ToneIcon tone={tone} hollow={!isOnline || phase === "unknown"} />
      {terms.phase[phase]}
    </span>
  );
}

/** A short coloured word with its shape, for outcomes, rollouts and the like. */
export function Badge({ tone, children, isHollow }: { tone: Tone; children: string; isHollow?: boolean }) {
  return (
    <span className={`badge tone-${tone}`}>
      <ToneIcon tone={tone} hollow={isHollow} />
      {children}
    </span>
  );
}

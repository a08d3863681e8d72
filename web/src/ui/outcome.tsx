import type { Target } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import type { CellTone } from "./cell-grid";
import { Badge, type Tone } from "./phase";

type Outcome =
  | "pending"
  | "succeeded"
  | "failed"
  | "cancelled"
  | "skipped"
  | "forbidden"
  | "absent"
  | "cordoned";

/** The codes of docs/errors.md that a viewer tells apart. */
export function outcomeOf(code: number): Outcome {
  switch (code) {
    case 0:
      return "succeeded";
    case 115:
      return "pending";
    case 117:
      return "absent";
    case 126:
      return "cancelled";
    case 127:
      return "skipped";
    case 128:
      return "cordoned";
    case 403:
      return "forbidden";
    default:
      return "failed";
  }
}

const tones: Record<Outcome, Tone> = {
  pending: "changing",
  succeeded: "running",
  failed: "failed",
  cancelled: "idle",
  skipped: "idle",
  forbidden: "warning",
  absent: "warning",
  cordoned: "warning",
};

export function cellToneOf(code: number): CellTone {
  const outcome = outcomeOf(code);
  return outcome === "pending" ? "empty" : tones[outcome];
}

type Props = {
  target: Pick<Target, "code"> & { index?: number };
  /** Of a rolling task: the targets from this index on wait for their turn. */
  released?: number;
};

export function OutcomeBadge({ target, released }: Props) {
  const { terms, tasks } = useMessages();
  const outcome = outcomeOf(target.code);
  if (outcome === "pending" && released !== undefined) {
    const isWaiting = (target.index ?? 0) >= released;
    return (
      <Badge tone={isWaiting ? "idle" : "changing"} isHollow={isWaiting}>
        {isWaiting ? tasks.target.waits : tasks.cell.released}
      </Badge>
    );
  }
  return (
    <Badge tone={tones[outcome]} isHollow={outcome === "skipped"}>
      {terms.outcome[outcome]}
    </Badge>
  );
}

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

export function OutcomeBadge({ target }: { target: Pick<Target, "code"> }) {
  const { terms } = useMessages();
  const outcome = outcomeOf(target.code);
  return (
    <Badge tone={tones[outcome]} isHollow={outcome === "skipped"}>
      {terms.outcome[outcome]}
    </Badge>
  );
}

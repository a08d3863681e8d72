import type { UpgradeState as Name, UpgradeHostState, UpgradeRingProgress } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { Badge, type Tone, ToneIcon } from "@/ui/phase";

const tones: Record<Name, Tone> = {
  running: "changing",
  paused: "warning",
  done: "running",
  failed: "failed",
  cancelled: "idle",
};

export function UpgradeState({ state }: { state: Name }) {
  const { upgrades: text } = useMessages();
  return <Badge tone={tones[state]}>{text.state[state]}</Badge>;
}

/** In the order in which they are listed. */
export const hostStates = [
  "failed",
  "upgrading",
  "waiting",
  "done",
  "skipped",
] as const satisfies readonly UpgradeHostState[];

export const hostTones: Record<UpgradeHostState, Tone> = {
  waiting: "idle",
  upgrading: "changing",
  done: "running",
  failed: "failed",
  skipped: "warning",
};

export function HostState({ state }: { state: UpgradeHostState }) {
  const { upgrades: text } = useMessages();
  return (
    <span className={`phase tone-${hostTones[state]}`}>
      <ToneIcon tone={hostTones[state]} hollow={state === "waiting"} />
      {text.host[state]}
    </span>
  );
}

const nobody: UpgradeRingProgress = { waiting: 0, upgrading: 0, done: 0, failed: 0, skipped: 0 };

/** Over all rings. */
export function sumOf(rings: readonly UpgradeRingProgress[]): UpgradeRingProgress {
  return rings.reduce(
    (sum, ring) => ({
      waiting: sum.waiting + ring.waiting,
      upgrading: sum.upgrading + ring.upgrading,
      done: sum.done + ring.done,
      failed: sum.failed + ring.failed,
      skipped: sum.skipped + ring.skipped,
    }),
    nobody,
  );
}

export const totalOf = (ring: UpgradeRingProgress) => hostStates.reduce((sum, state) => sum + ring[state], 0);

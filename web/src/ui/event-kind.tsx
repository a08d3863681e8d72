import type { Event } from "@/api/events";
import { useMessages } from "@/settings/context";
import { type Tone, ToneIcon } from "./phase";

const tones: Record<string, Tone> = {
  restart_succeeded: "warning",
  restart_failed: "failed",
  cancel_restart: "failed",
  limit_exceeded: "failed",
  pool_limit_exceeded: "failed",
  started: "running",
  exited: "idle",
  adopted: "running",
  pid_changed: "changing",
  health_changed: "changing",
  config_changed: "warning",
  schedule_skipped: "warning",
  fd_warning: "warning",
  pool_warning: "warning",
  agent_online: "running",
  agent_offline: "failed",
  events_dropped: "warning",
  local_operation: "warning",
  command_refused: "failed",
  agent_upgraded: "running",
  agent_upgrade_failed: "failed",
  agent_cloned: "failed",
  clock_off: "warning",
};

/** What events of a type mean, as far as the type alone tells. */
export function toneOfType(type: string): Tone {
  return tones[type] ?? "idle";
}

export function eventTone(event: Pick<Event, "type" | "details">): Tone {
  if (event.type === "health_changed") {
    return event.details?.state === "healthy" ? "running" : "failed";
  }
  return toneOfType(event.type);
}

/** The name of an event's type; a type of a newer server is shown as it is. */
export function EventKindLabel({ event }: { event: Pick<Event, "type" | "details"> }) {
  const { terms } = useMessages();
  const names: Record<string, string> = terms.event;
  const tone = eventTone(event);
  return (
    <span className={`phase tone-${tone}`}>
      <ToneIcon tone={tone} />
      {names[event.type] ?? event.type}
    </span>
  );
}

import { useSyncExternalStore } from "react";
import { eventStream } from "@/api/stream";
import { useMessages } from "@/settings/context";
import { formatClock } from "@/ui/format";
import { useNow } from "@/ui/time";

const PATIENCE_MS = 3000;

function subscribeOnline(watcher: () => void) {
  window.addEventListener("online", watcher);
  window.addEventListener("offline", watcher);
  return () => {
    window.removeEventListener("online", watcher);
    window.removeEventListener("offline", watcher);
  };
}

/** A thin bar while the server or the network is away, with the time of the last word. */
export function ConnectionBar() {
  const { common, states } = useMessages();
  const stream = useSyncExternalStore(eventStream.watch, () => eventStream.state);
  const isOnline = useSyncExternalStore(subscribeOnline, () => navigator.onLine);
  const now = useNow();
  const since = stream.awaySince;
  if (isOnline && (since === null || Math.max(now, Date.now()) - since < PATIENCE_MS)) return null;
  const text =
    isOnline && since !== null
      ? states.streamAway(formatClock(stream.heardAt || since, common.locale))
      : states.offline(stream.heardAt ? formatClock(stream.heardAt, common.locale) : "");
  return (
    <div className="connection-bar" role="status">
      {text}
    </div>
  );
}

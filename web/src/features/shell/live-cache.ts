import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { splitProcess } from "@/api/processes";
import { eventStream } from "@/api/stream";

const SETTLE_MS = 400;

/** What an event names is asked for anew: the process's page, the hosts, the lists of events. */
export function useLiveCache() {
  const client = useQueryClient();
  useEffect(() => {
    const dirty = new Map<string, readonly string[]>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      for (const queryKey of dirty.values())
        void client.invalidateQueries({ queryKey, refetchType: "active" });
      dirty.clear();
    };
    const mark = (...key: string[]) => dirty.set(key.join("\n"), key);
    const unlisten = eventStream.listen((events) => {
      for (const event of events) {
        if (event.process) {
          const { namespace, name } = splitProcess(event.process);
          mark("process", namespace, name);
        }
        if (event.type.startsWith("agent_")) mark("hosts");
      }
      mark("attention");
      timer ??= setTimeout(flush, SETTLE_MS);
    });
    eventStream.start();
    return () => {
      unlisten();
      clearTimeout(timer);
      eventStream.stop();
    };
  }, [client]);
}

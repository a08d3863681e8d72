export const events = {
  title: "Events",
  live: "Live",
  paused: "Paused",
  pause: "Pause",
  resume: "Go on",
  waiting: (n: string) => `${n} new`,
  filter: { namespace: "Namespace", name: "Name", host: "Host", type: "Type" },
  column: { time: "Time", type: "Type", process: "Process", host: "Host", content: "What happened" },
  emptyTitle: "No event yet",
  emptyText: "Starts, exits, restarts, evictions and agents that come and go appear here as they happen.",
  json: "Event as JSON",
  storedLater: (text: string) => `stored ${text} later`,
};

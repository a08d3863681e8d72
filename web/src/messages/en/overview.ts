export const overview = {
  title: "Overview",
  stat: {
    away: "Hosts away",
    failed: "Failed",
    crashLooping: "Crash-looping",
    evicted: "Evicted",
  },
  ofHosts: (n: string) => `of ${n} hosts`,
  ofProcesses: (n: string) => `of ${n}`,
  change: (by: number, n: (count: number) => string, minutes: number) => {
    const span = minutes >= 55 ? "in an hour" : `in ${minutes} min`;
    return by === 0 ? `no change ${span}` : `${by > 0 ? "+" : "−"}${n(Math.abs(by))} ${span}`;
  },
  events: {
    offline: (count: number, n: string) =>
      count === 0 ? "none went away in the last hour" : `${n} went away in the last hour`,
    failures: (count: number, n: string) =>
      count === 0
        ? "no failure in the last hour"
        : `${n} ${count === 1 ? "failure" : "failures"} in the last hour`,
    restarts: (count: number, n: string) =>
      count === 0
        ? "no restart in the last hour"
        : `${n} ${count === 1 ? "restart" : "restarts"} in the last hour`,
    evictions: (count: number, n: string) =>
      count === 0
        ? "no eviction in the last hour"
        : `${n} ${count === 1 ? "eviction" : "evictions"} in the last hour`,
  },
  attention: "Needs attention",
  allWell: "All is well",
  allWellText: "No process has failed, no host is away.",
  troubles: (n: string) => (n === "1" ? "1 thing needs attention" : `${n} things need attention`),
  more: (n: string) => `and ${n} more`,
  kind: {
    failed: "Failed",
    crash_looping: "Crash-looping",
    evicted: "Evicted",
    unhealthy: "Unhealthy",
    host_away: "Away",
    host_unreachable: "Unreachable",
    certificate_ends: "Certificate expires",
    clock_off: "Clock is off",
    agent_outdated: "Other version",
    awaits_approval: "Waiting for approval",
  },
  onHosts: (n: string) => (n === "1" ? "on 1 host" : `on ${n} hosts`),
  happened: "Restarts, evictions and failures, last 24 h",
  series: {
    restarts: "Restarted",
    evictions: "Evicted or over limit",
    failures: "Failed or gave up",
    offline: "Agents offline",
  },
  quiet: "Nothing of this kind happened in the last 24 hours.",
  clouds: "Hosts by cloud area",
  onCordoned: "On hosts in maintenance",
  map: "Fleet",
  cloud: (n: number) => `Cloud area ${n}`,
  worst: {
    running: "All processes running",
    changing: "A process is starting, stopping or waiting",
    failed: "A process failed",
    stopped: "A process is stopped or unknown",
    unknown: "The state of a process is not known",
    away: "Away",
    unreachable: "Unreachable: no relay of the cloud area is connected",
    empty: "No process",
    cordoned: "In maintenance",
    awaits_approval: "Waiting for approval",
  },
  mapFailed: (n: string) => `${n} with a failed process`,
  mapAway: (n: string) => `${n} away`,
  hostCount: (n: string) => (n === "1" ? "1 host" : `${n} hosts`),
  noHosts: "No host has enrolled yet.",
  enrol: "Enrol the first host",
  processes: "Processes",
  tasks: "Tasks in progress",
  noTasks: "No task is in progress.",
  pausedTasks: (n: string) => `${n} paused`,
  versions: "Agent versions",
  certificates: "Certificates expiring soon",
  noCertificates: "None within 7 days.",
};

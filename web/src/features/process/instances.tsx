import { Link } from "react-router";
import type { Process } from "@/api/processes";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { formatBytes } from "@/ui/format";
import { Meter } from "@/ui/meter";
import { hostPath } from "@/ui/paths";
import { Phase } from "@/ui/phase";
import { AwaySince, Time, useNow } from "@/ui/time";
import type { TabProps } from "./process-page";

/** The process on each of its hosts, with live figures against its limits. */
export function Instances({ instances }: TabProps) {
  const { process: text } = useMessages();
  const columns = useInstanceColumns().filter(
    (column) => column.key !== "nextRun" || instances.some((row) => row.snapshot?.next_run_at),
  );
  return (
    <DataTable
      label={text.tab.instances}
      isMain
      columns={columns}
      rows={instances}
      rowKey={(row) => row.host}
      rowClass={(row) => (row.online ? "" : "is-away")}
      isLoading={false}
      empty={null}
    />
  );
}

function useInstanceColumns(): Column<Process>[] {
  const { processes, process: text, terms } = useMessages();
  const { column } = processes;
  return [
    {
      key: "host",
      title: column.host,
      width: "minmax(104px, 1.2fr)",
      render: (row) => (
        <Link to={hostPath(row.host)} className="mono">
          {row.host}
        </Link>
      ),
    },
    {
      key: "phase",
      title: column.phase,
      width: "110px",
      render: (row) => <Phase phase={row.phase} isOnline={row.online} />,
    },
    {
      key: "reason",
      title: column.reason,
      width: "minmax(120px, 2fr)",
      from: 800,
      render: (row) => (
        <span title={terms.told(ofReason(row))}>
          {row.online ? terms.told(ofReason(row)) : <AwaySince at={row.presence_changed_at} />}
        </span>
      ),
    },
    {
      key: "cpu",
      title: column.cpu,
      width: "118px",
      isNumber: true,
      from: 350,
      render: (row) =>
        row.pid ? <Meter value={row.cpu_percent} limit={row.spec?.limits.cpu} label={column.cpu} /> : "",
    },
    {
      key: "memory",
      title: column.memory,
      width: "132px",
      isNumber: true,
      from: 700,
      render: (row) =>
        row.pid ? (
          <Meter value={row.memory_percent} limit={row.spec?.limits.memory} label={column.memory} />
        ) : (
          ""
        ),
    },
    {
      key: "bytes",
      title: "RSS",
      width: "84px",
      isNumber: true,
      from: 1100,
      render: (row) => (row.pid && row.snapshot ? formatBytes(row.snapshot.usage.memory_bytes) : ""),
    },
    {
      key: "restarts",
      title: column.restarts,
      width: "80px",
      isNumber: true,
      from: 900,
      render: (row) => row.restarts,
    },
    {
      key: "pid",
      title: column.pid,
      width: "84px",
      isNumber: true,
      from: 1000,
      render: (row) => row.pid ?? "",
    },
    {
      key: "started",
      title: column.started,
      width: "110px",
      isNumber: true,
      from: 420,
      render: (row) => (row.pid ? <Time at={row.started_at} /> : ""),
    },
    {
      key: "nextRun",
      title: text.instance.nextRun,
      width: "110px",
      isNumber: true,
      render: (row) => (row.snapshot?.next_run_at ? <Time at={row.snapshot.next_run_at} /> : ""),
    },
    {
      key: "health",
      title: text.instance.health,
      width: "90px",
      from: 1240,
      render: (row) => <Health word={row.snapshot?.health ?? ""} />,
    },
    {
      key: "seen",
      title: text.instance.seen,
      width: "100px",
      isNumber: true,
      from: 1060,
      render: (row) => <Seen row={row} />,
    },
  ];
}

/** What the health command said last; a word of another version as it is. */
function Health({ word }: { word: string }) {
  const { terms } = useMessages();
  const names: Record<string, string> = terms.health;
  const isWell = word === "" || word === "healthy";
  return <span className={isWell ? undefined : "tone-warning"}>{names[word] ?? word}</span>;
}

/** An agent reports what its processes use at least once a minute; what is much older is marked. */
const REPORT_OLD_MS = 180_000;

function Seen({ row }: { row: Process }) {
  const now = useNow();
  const at = row.snapshot?.reported_at;
  const isOld = row.online && row.pid != null && at != null && at > 0 && now - at * 1000 > REPORT_OLD_MS;
  return (
    <span className={isOld ? "tone-warning" : undefined}>
      <Time at={at} />
    </span>
  );
}

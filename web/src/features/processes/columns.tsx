import { Link } from "react-router";
import type { Process } from "@/api/processes";
import type { Messages } from "@/messages";
import { ofReason } from "@/messages/told";
import type { Column } from "@/ui/data-table";
import { Meter } from "@/ui/meter";
import { hostPath, processPath } from "@/ui/paths";
import { Phase } from "@/ui/phase";
import { AwaySince, Time } from "@/ui/time";

/** Columns that the viewer can switch on and off; the first three are always there. */
export const optionalColumns = [
  "reason",
  "cpu",
  "memory",
  "restarts",
  "started",
  "pid",
  "version",
  "business",
  "lifetime",
  "generation",
] as const;
export const defaultColumns = "reason,cpu,memory,restarts,started,business";

export function processColumns(
  messages: Messages,
  businessName: (id: number | null | undefined) => string,
): Column<Process>[] {
  const text = messages.processes.column;
  return [
    {
      key: "process",
      title: text.process,
      width: "minmax(104px, 1.6fr)",
      sort: "name",
      render: (row) => (
        <Link to={processPath(row.process)} title={row.process}>
          {row.process}
        </Link>
      ),
    },
    {
      key: "host",
      title: text.host,
      width: "minmax(106px, 1.2fr)",
      render: (row) => (
        <Link to={hostPath(row.host)} className="mono">
          {row.host}
        </Link>
      ),
    },
    {
      key: "phase",
      title: text.phase,
      width: "104px",
      render: (row) => <Phase phase={row.phase} isOnline={row.online} />,
    },
    {
      key: "reason",
      title: text.reason,
      width: "minmax(100px, 2fr)",
      from: 900,
      render: (row) => (
        <span title={messages.terms.told(ofReason(row))} className={row.reason ? "" : "muted"}>
          {!row.online ? (
            <AwaySince at={row.presence_changed_at} />
          ) : (
            messages.terms.told(ofReason(row)) || (row.managed ? "" : messages.processes.notManaged)
          )}
        </span>
      ),
    },
    {
      key: "cpu",
      title: text.cpu,
      width: "124px",
      isNumber: true,
      sort: "cpu",
      from: 700,
      render: (row) =>
        row.pid ? <Meter value={row.cpu_percent} limit={row.cpu_limit} label={text.cpu} /> : "",
    },
    {
      key: "memory",
      title: text.memory,
      width: "124px",
      isNumber: true,
      sort: "memory",
      from: 700,
      render: (row) =>
        row.pid ? <Meter value={row.memory_percent} limit={row.memory_limit} label={text.memory} /> : "",
    },
    {
      key: "restarts",
      title: text.restarts,
      width: "80px",
      isNumber: true,
      sort: "restarts",
      from: 800,
      render: (row) => (row.restarts > 0 ? row.restarts : <span className="muted">0</span>),
    },
    {
      key: "started",
      title: text.started,
      width: "104px",
      isNumber: true,
      sort: "started",
      from: 560,
      render: (row) => (row.pid ? <Time at={row.started_at} /> : ""),
    },
    { key: "pid", title: text.pid, width: "84px", isNumber: true, from: 700, render: (row) => row.pid ?? "" },
    { key: "version", title: text.version, width: "110px", from: 700, render: (row) => row.version },
    {
      key: "business",
      title: text.business,
      width: "minmax(90px, 1fr)",
      from: 1060,
      render: (row) => businessName(row.business),
    },
    {
      key: "lifetime",
      title: text.lifetime,
      width: "90px",
      from: 700,
      render: (row) => messages.terms.lifetime[row.lifetime],
    },
    {
      key: "generation",
      title: text.generation,
      width: "100px",
      isNumber: true,
      from: 700,
      render: (row) => row.generation,
    },
  ];
}

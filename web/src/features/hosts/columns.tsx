import { Link } from "react-router";
import type { Host } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import type { Column } from "@/ui/data-table";
import { formatBytes } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Time } from "@/ui/time";
import { useBusinessName } from "@/ui/use-business-name";
import { Presence } from "./presence";

export function useHostColumns(): Column<Host>[] {
  const { hosts: text } = useMessages();
  const businessName = useBusinessName();
  const { column } = text;
  return [
    {
      key: "host",
      title: column.host,
      width: "minmax(124px, 1fr)",
      render: (host) => (
        <Link to={hostPath(host.host)} className="mono">
          {host.host}
        </Link>
      ),
    },
    {
      key: "hostname",
      title: column.hostname,
      width: "minmax(110px, 1.7fr)",
      from: 560,
      render: (host) => <span title={host.facts?.hostname}>{host.facts?.hostname}</span>,
    },
    { key: "state", title: column.state, width: "96px", render: (host) => <Presence host={host} /> },
    {
      key: "since",
      title: column.since,
      width: "96px",
      isNumber: true,
      from: 380,
      render: (host) => <Time at={host.presence_changed_at} />,
    },
    {
      key: "business",
      title: column.business,
      width: "minmax(80px, 0.8fr)",
      from: 700,
      render: (host) => businessName(host.business),
    },
    {
      key: "os",
      title: column.os,
      width: "minmax(110px, 1.4fr)",
      from: 1000,
      render: (host) => {
        const system = host.facts ? `${host.facts.os} ${host.facts.arch}` : "";
        return <span title={system}>{system}</span>;
      },
    },
    {
      key: "cpus",
      title: column.cpus,
      width: "56px",
      isNumber: true,
      from: 900,
      render: (host) => host.facts?.cpus ?? "",
    },
    {
      key: "memory",
      title: column.memory,
      width: "76px",
      isNumber: true,
      from: 900,
      render: (host) => (host.facts ? formatBytes(host.facts.memory_bytes) : ""),
    },
    {
      key: "version",
      title: column.version,
      width: "108px",
      from: 800,
      render: (host) => host.facts?.agent_version ?? "",
    },
    {
      key: "certificate",
      title: column.certificate,
      width: "134px",
      isNumber: true,
      from: 1000,
      render: (host) => (host.certificate_expires_at ? <Time at={host.certificate_expires_at} /> : ""),
    },
  ];
}

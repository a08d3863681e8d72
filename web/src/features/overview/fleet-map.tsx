import { useMemo } from "react";
import { useNavigate } from "react-router";
import type { Host } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { CellGrid, type CellTone, Legend } from "@/ui/cell-grid";
import { useNumbers } from "@/ui/format";
import { Panel } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { useBusinessName } from "@/ui/use-business-name";
import type { Overview } from "./use-overview";

type Group = { key: string; cloud: number; business: number | null; hosts: Host[]; tones: CellTone[] };

/** One cell for each host, grouped by cloud area and business, coloured by its worst process. */
export function FleetMap({ data }: { data: Overview }) {
  const { overview: text, common } = useMessages();
  const number = useNumbers();
  const businessName = useBusinessName();
  const navigate = useNavigate();
  const groups = useMemo(() => groupHosts(data), [data]);
  const cell =
    data.hosts.length > 8000 ? 6 : data.hosts.length > 2000 ? 8 : data.hosts.length > 400 ? 11 : 14;
  return (
    <Panel
      title={text.map}
      extra={<span className="muted">{text.hostCount(number(data.hosts.length))}</span>}
    >
      <div className="panel-body stack">
        {groups.map((group) => {
          const name = businessName(group.business) || common.noBusiness;
          return (
            <div key={group.key}>
              <div className="map-title">
                <span>
                  {text.cloud(group.cloud)} · {name}
                </span>
                <span className="muted">{number(group.hosts.length)}</span>
              </div>
              <CellGrid
                label={`${name}: ${text.hostCount(number(group.hosts.length))}`}
                tones={group.tones}
                cellPx={cell}
                onOpen={(index) => void navigate(hostPath(group.hosts[index]?.host ?? ""))}
                describe={(index) => <Tip host={group.hosts[index]} tone={group.tones[index]} />}
              />
            </div>
          );
        })}
        <Legend
          items={[
            ["running", text.worst.running],
            ["warning", text.worst.warning],
            ["failed", text.worst.failed],
            ["idle", text.worst.idle],
          ]}
        />
      </div>
    </Panel>
  );
}

function Tip({ host, tone }: { host: Host | undefined; tone: CellTone | undefined }) {
  const { overview: text } = useMessages();
  if (!host) return null;
  const worst: Partial<Record<CellTone, string>> = text.worst;
  return (
    <>
      <div className="mono">{host.host}</div>
      <div>{host.facts?.hostname}</div>
      <div className="muted">{worst[tone ?? "running"]}</div>
    </>
  );
}

function groupHosts(data: Overview): Group[] {
  const failed = new Set([...data.failed, ...data.looping].map((row) => row.host));
  const waiting = new Set(data.waiting.map((row) => row.host));
  const groups = new Map<string, Group>();
  for (const host of data.hosts) {
    const key = `${host.cloud} ${host.business ?? ""}`;
    const group = groups.get(key) ?? {
      key,
      cloud: host.cloud,
      business: host.business ?? null,
      hosts: [],
      tones: [],
    };
    groups.set(key, group);
    group.hosts.push(host);
    group.tones.push(
      !host.online
        ? "idle"
        : failed.has(host.host)
          ? "failed"
          : waiting.has(host.host)
            ? "warning"
            : "running",
    );
  }
  return [...groups.values()].sort((a, b) => a.cloud - b.cloud || b.hosts.length - a.hosts.length);
}

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useNavigate } from "react-router";
import { type FleetMap as FleetMapData, fleetMapQuery, type HostState, SUMS_EVERY_MS } from "@/api/overview";
import { useMessages } from "@/settings/context";
import { CellGrid, type CellTone, Legend } from "@/ui/cell-grid";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Panel } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { Failure, Skeleton } from "@/ui/states";
import { linkTo } from "@/ui/url-state";
import { useBusinessName } from "@/ui/use-business-name";

const tones: Record<HostState, CellTone> = {
  failed: "failed",
  away: "warning",
  unreachable: "warning",
  cordoned: "idle",
  awaits_approval: "idle",
  changing: "changing",
  running: "running",
  unknown: "idle",
  stopped: "idle",
  empty: "empty",
};

type Group = { key: string; cloud: number; business: number | null; cells: number[]; tones: CellTone[] };

/** One cell for each host, grouped by cloud area and business, coloured by its worst process. */
export function FleetMap() {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const { data, dataUpdatedAt, error, refetch } = useQuery(fleetMapQuery);
  const count = data && (
    <>
      <Freshness updatedAt={dataUpdatedAt} expectedMs={SUMS_EVERY_MS * 1.5} />
      <span className="muted">{text.hostCount(number(data.hosts.length))}</span>
    </>
  );
  return (
    <Panel title={text.map} extra={count}>
      <div className="panel-body stack">
        {data ? (
          <Groups map={data} />
        ) : error ? (
          <Failure error={error} onRetry={() => void refetch()} />
        ) : (
          <Skeleton lines={4} />
        )}
        <Legend
          items={[
            ["running", text.worst.running],
            ["changing", text.worst.changing],
            ["failed", text.worst.failed],
            ["warning", text.worst.away],
            ["idle", text.worst.stopped],
            ["empty", text.worst.empty],
          ]}
        />
      </div>
    </Panel>
  );
}

function Groups({ map }: { map: FleetMapData }) {
  const { overview: text, common } = useMessages();
  const number = useNumbers();
  const businessName = useBusinessName();
  const navigate = useNavigate();
  const groups = useMemo(() => groupHosts(map), [map]);
  const inWords = (group: Group) => {
    const of = (tone: CellTone) => group.tones.filter((each) => each === tone).length;
    const [failed, away] = [of("failed"), of("warning")];
    const parts = [text.hostCount(number(group.cells.length))];
    if (failed > 0) parts.push(text.mapFailed(number(failed)));
    if (away > 0) parts.push(text.mapAway(number(away)));
    return parts.join(", ");
  };
  const count = map.hosts.length;
  const cellPx = count > 8000 ? 6 : count > 2000 ? 8 : count > 400 ? 11 : 14;
  return groups.map((group) => {
    const name = businessName(group.business) || common.noBusiness;
    const host = (index: number) => map.hosts[group.cells[index] ?? 0] ?? "";
    return (
      <div key={group.key}>
        <div className="map-title">
          <Link to={linkTo("/hosts", { cloud: String(group.cloud), business: group.business?.toString() })}>
            {text.cloud(group.cloud)} · {name}
          </Link>
          <span className="muted">{inWords(group)}</span>
        </div>
        <CellGrid
          label={`${name}: ${inWords(group)}`}
          tones={group.tones}
          cellPx={cellPx}
          onOpen={(index) => void navigate(hostPath(host(index)))}
          describe={(index) => (
            <>
              <div className="mono">{host(index)}</div>
              <div className="muted">{text.worst[map.worst[group.cells[index] ?? 0] ?? "unknown"]}</div>
            </>
          )}
        />
      </div>
    );
  });
}

/** In the order of cloud areas, the largest business first. */
export function groupHosts(map: FleetMapData): Group[] {
  const groups = new Map<string, Group>();
  map.hosts.forEach((host, index) => {
    const cloud = Number(host.slice(0, host.indexOf(":")));
    const business = map.business[index] ?? null;
    const key = `${cloud} ${business ?? ""}`;
    const group = groups.get(key) ?? { key, cloud, business, cells: [], tones: [] };
    groups.set(key, group);
    group.cells.push(index);
    group.tones.push(tones[map.worst[index] ?? "unknown"]);
  });
  return [...groups.values()].sort((a, b) => a.cloud - b.cloud || b.cells.length - a.cells.length);
}

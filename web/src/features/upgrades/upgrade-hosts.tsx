import { Segmented } from "antd";
import { useCallback, useMemo } from "react";
import { Link } from "react-router";
import { fetchUpgradeHosts, type UpgradeHost, type UpgradeRingProgress } from "@/api/fleet";
import { usePaged } from "@/api/paged";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { Failure } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { HostState, hostStates } from "./upgrade-state";

const WATCH_MS = 3000;
const IDLE_MS = 60_000;

type Props = { id: string; counts: UpgradeRingProgress; isBusy: boolean };

/** The hosts of an upgrade, narrowed by their state. */
export function UpgradeHosts({ id, counts, isBusy }: Props) {
  const { upgrades: text, common } = useMessages();
  const number = useNumbers();
  const [chosen, setState] = useUrlValue("state");
  const state = hostStates.find((known) => known === chosen);
  const key = useMemo(() => ["upgrades", id, "hosts", state] as const, [id, state]);
  const fetchPage = useCallback(
    (after: string | null, signal?: AbortSignal) => fetchUpgradeHosts(id, state, after, undefined, signal),
    [id, state],
  );
  const list = usePaged<UpgradeHost>(key, fetchPage, isBusy ? WATCH_MS : IDLE_MS);
  const columns = useColumns();
  const present = hostStates.filter((each) => counts[each] > 0 || each === state);
  return (
    <div className="upgrade-table">
      <div className="filters is-short">
        <Segmented
          value={chosen}
          onChange={setState}
          options={[
            { value: "", label: common.all },
            ...present.map((each) => ({
              value: each as string,
              label: `${text.host[each]} ${number(counts[each])}`,
            })),
          ]}
        />
        <span className="grow" />
        <ExportButton
          name="upgrade-hosts"
          rows={list.rows}
          fetchPage={(after) => fetchUpgradeHosts(id, state, after, 1000)}
          columns={["host", "agent", "ring", "state", "version_before", "reason", "changed_at"]}
        />
      </div>
      {list.error && list.rows.length === 0 ? (
        <Failure error={list.error} need="admin" onRetry={() => void list.retry()} />
      ) : (
        <DataTable
          label={text.hosts}
          isMain
          columns={columns}
          {...list.table}
          rowKey={(host) => host.agent}
          empty={<EmptyFiltered names={["state"]} />}
        />
      )}
    </div>
  );
}

function useColumns(): Column<UpgradeHost>[] {
  const { upgrades: text, terms } = useMessages();
  const { hostColumn: column } = text;
  return [
    {
      key: "host",
      title: column.host,
      width: "minmax(118px, 1fr)",
      render: (host) => (
        <Link to={hostPath(host.host)} className="mono">
          {host.host}
        </Link>
      ),
    },
    {
      key: "ring",
      title: column.ring,
      width: "64px",
      isNumber: true,
      from: 420,
      render: (host) => host.ring,
    },
    {
      key: "state",
      title: column.state,
      width: "108px",
      render: (host) => <HostState state={host.state} />,
    },
    {
      key: "before",
      title: column.before,
      width: "120px",
      from: 640,
      render: (host) => <span className="mono">{host.version_before}</span>,
    },
    {
      key: "reason",
      title: column.reason,
      width: "minmax(110px, 3fr)",
      from: 340,
      render: (host) => {
        const told = terms.told(ofReason(host));
        return <span title={told}>{told}</span>;
      },
    },
    {
      key: "changed",
      title: column.changed,
      width: "110px",
      isNumber: true,
      from: 760,
      render: (host) => <Time at={host.changed_at} />,
    },
  ];
}

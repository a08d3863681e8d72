import { useQuery } from "@tanstack/react-query";
import { Tabs } from "antd";
import { useCallback, useMemo } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { ApiError } from "@/api/client";
import { type Host, hostQuery } from "@/api/hosts";
import { usePaged } from "@/api/paged";
import { concernsProcess, fetchProcesses, type Process } from "@/api/processes";
import { hostPoolsQuery } from "@/api/server";
import { HostEvents } from "@/features/events/event-table";
import { PoolUsage } from "@/features/pools/pool-bar";
import { processColumns } from "@/features/processes/columns";
import { useMessages } from "@/settings/context";
import { CopyButton, CopyText } from "@/ui/copy";
import { DataTable } from "@/ui/data-table";
import { ExportButton } from "@/ui/export";
import { formatBytes, formatSpan, useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Facts, Page } from "@/ui/page";
import { poolPath, processPath } from "@/ui/paths";
import { SimpleTable } from "@/ui/simple-table";
import { Empty, Failure, NotFound, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { useBusinessName } from "@/ui/use-business-name";
import { HostActions } from "./host-actions";
import { HostNotes, MaintenanceButton } from "./maintenance";
import { Presence } from "./presence";
import "./hosts.css";

export function Component() {
  const { host: name = "" } = useParams();
  const { hosts: text } = useMessages();
  const query = useQuery(hostQuery(name));
  const [tab, setTab] = useUrlValue("tab", "processes");
  const host = query.data;
  const crumbs = [{ label: text.title, to: "/hosts" }];
  if (!host) {
    return (
      <Page title={name} crumbs={crumbs}>
        {query.isPending ? (
          <Skeleton lines={10} />
        ) : query.error instanceof ApiError && query.error.status === 404 ? (
          <NotFound />
        ) : (
          <Failure error={query.error} onRetry={() => void query.refetch()} />
        )}
      </Page>
    );
  }
  return (
    <Page
      title={host.host}
      crumbs={crumbs}
      isFilled
      beside={
        <>
          <CopyButton text={host.host} />
          <Presence host={host} />
          <Freshness updatedAt={query.dataUpdatedAt} />
        </>
      }
      actions={
        <>
          <MaintenanceButton host={host} />
          <HostActions host={host} />
        </>
      }
    >
      {!host.online && (
        <p className="host-away">
          {text.awaySince} <Time at={host.presence_changed_at} />. {text.awayNote}
        </p>
      )}
      <HostNotes host={host} />
      <HostFacts host={host} />
      <Tabs
        activeKey={tab}
        onChange={setTab}
        items={[
          { key: "processes", label: text.processes },
          { key: "events", label: text.events },
          { key: "pools", label: text.pools },
        ]}
      />
      {tab === "events" ? (
        <HostEvents host={host.host} />
      ) : tab === "pools" ? (
        <HostPools host={host.host} />
      ) : (
        <HostProcesses host={host.host} />
      )}
    </Page>
  );
}

function HostFacts({ host }: { host: Host }) {
  const { hosts: text, common } = useMessages();
  const businessName = useBusinessName();
  const { facts } = host;
  return (
    <div className="panel">
      <Facts
        items={[
          [text.column.hostname, facts?.hostname ?? common.unknown],
          [text.column.os, facts ? `${facts.os} · ${facts.arch}` : common.unknown],
          [
            text.fact.capacity,
            facts ? text.fact.cpusAndMemory(facts.cpus, formatBytes(facts.memory_bytes)) : common.unknown,
          ],
          [text.column.business, businessName(host.business) || common.noBusiness],
          [text.fact.agentId, <CopyText key="agent" text={host.agent} />],
          [text.column.version, facts?.agent_version ?? common.unknown],
          [
            text.column.certificate,
            host.certificate_expires_at ? (
              <Time key="certificate" at={host.certificate_expires_at} />
            ) : (
              common.unknown
            ),
          ],
          [text.column.clock, <Clock key="clock" aheadMs={host.clock_ahead_ms} />],
          [text.fact.link, <LinkTime key="link" link={host.link} />],
          [text.fact.enrolled, <Time key="enrolled" at={host.enrolled_at} />],
          [
            text.fact.policy,
            facts?.policy ? <CopyText key="policy" text={facts.policy} /> : text.fact.noPolicy,
          ],
          ...(host.rejoin_until
            ? [[text.fact.rejoin, <Time key="rejoin" at={host.rejoin_until} />] as [string, React.ReactNode]]
            : []),
        ]}
      />
    </div>
  );
}

function Clock({ aheadMs }: { aheadMs: number | null | undefined }) {
  const { hosts: text, common } = useMessages();
  if (aheadMs == null) return common.unknown;
  const secs = aheadMs / 1000;
  if (Math.abs(secs) < 1) return text.fact.clockFine;
  const span = formatSpan(secs, common);
  return (
    <span className="tone-warning">
      {secs > 0 ? text.fact.clockAhead(span) : text.fact.clockBehind(span)}
    </span>
  );
}

/** How long the agent takes to answer over its link, relays included. */
function LinkTime({ link }: { link: Host["link"] }) {
  const { hosts: text, common } = useMessages();
  if (!link) return common.unknown;
  const millis = link.rtt_us / 1000;
  return (
    <span>
      {millis.toFixed(millis < 10 ? 1 : 0)} ms{" "}
      <span className="muted">
        · {text.fact.linkMeasured} <Time at={link.measured_at} />
      </span>
    </span>
  );
}

/** What is the same for all processes of a host, or leaves no room for the reason. */
const hostOmits = ["host", "business", "generation", "version", "lifetime"];

const hostWidths: Record<string, string> = { process: "minmax(104px, 2fr)", reason: "minmax(140px, 3fr)" };

function HostProcesses({ host }: { host: string }) {
  const messages = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const businessName = useBusinessName();
  const key = useMemo(() => ["processes", { host }] as const, [host]);
  const fetchPage = useCallback(
    (after: string | null, signal?: AbortSignal) =>
      fetchProcesses({ host, count: true }, after, undefined, signal),
    [host],
  );
  const list = usePaged<Process>(key, fetchPage, undefined, concernsProcess);
  const columns = processColumns(messages, businessName)
    .filter((column) => !hostOmits.includes(column.key))
    .map((column) => ({ ...column, width: hostWidths[column.key] ?? column.width }));
  if (list.error && list.rows.length === 0)
    return <Failure error={list.error} onRetry={() => void list.retry()} />;
  return (
    <>
      <div className="row host-list-head">
        <span className="muted grow">
          {list.total === undefined ? "" : messages.common.rows(number(list.total), false)}
        </span>
        <ExportButton
          name={`processes-of-${host.replace(":", "-")}`}
          rows={list.rows}
          columns={[
            "process",
            "phase",
            "reason",
            "pid",
            "cpu_percent",
            "memory_percent",
            "restarts",
            "started_at",
          ]}
          fetchPage={fetchPage}
        />
      </div>
      <DataTable
        label={messages.hosts.processes}
        isMain
        columns={columns}
        {...list.table}
        rowKey={(row) => row.process}
        rowClass={(row) => (row.online ? "" : "is-away")}
        onOpen={(row) => void navigate(processPath(row.process))}
        empty={<Empty title={messages.hosts.noProcesses} />}
      />
    </>
  );
}

function HostPools({ host }: { host: string }) {
  const { pools: text } = useMessages();
  const pools = useQuery(hostPoolsQuery({ host }));
  if (pools.isPending) return <Skeleton />;
  if (pools.error && !pools.data) return <Failure error={pools.error} onRetry={() => void pools.refetch()} />;
  if (pools.data?.length === 0) return <Empty title={text.emptyTitle}>{text.emptyText}</Empty>;
  return (
    <div className="panel">
      <div className="panel-head">
        <span className="grow" />
        <ExportButton
          name={`pools-of-${host.replace(":", "-")}`}
          rows={pools.data ?? []}
          columns={["namespace", "id", "cpu", "memory", "cpu_weight", "memory_weight", "dry_run"]}
        />
      </div>
      <SimpleTable
        label={text.title}
        rows={pools.data ?? []}
        rowKey={(pool) => `${pool.namespace} ${pool.id}`}
        columns={[
          {
            key: "pool",
            title: text.column.pool,
            render: (pool) => (
              <Link to={poolPath(pool.host, pool.namespace, pool.id)}>
                {pool.namespace === pool.id ? pool.id : `${pool.namespace}/${pool.id}`}
              </Link>
            ),
          },
          { key: "cpu", title: text.cpu, render: (pool) => <PoolUsage pool={pool} resource="cpu" /> },
          {
            key: "memory",
            title: text.memory,
            render: (pool) => <PoolUsage pool={pool} resource="memory" />,
          },
          {
            key: "mode",
            title: text.column.mode,
            isMinor: true,
            render: (pool) => (pool.dry_run ? text.dryRun : text.acts),
          },
        ]}
      />
    </div>
  );
}

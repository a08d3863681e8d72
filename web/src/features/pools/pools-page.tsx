import { Button } from "antd";
import { useCallback, useMemo } from "react";
import { Link, useNavigate } from "react-router";
import { usePaged } from "@/api/paged";
import { fetchPools, type Pool } from "@/api/server";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { Freshness } from "@/ui/freshness";
import { Page } from "@/ui/page";
import { hostPath, poolPath, processPath } from "@/ui/paths";
import { Badge } from "@/ui/phase";
import { Guarded } from "@/ui/rights";
import { Empty, Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { PoolUsage } from "./pool-bar";
import { PoolDialog } from "./pool-dialog";
import { type OwnLimits, type Resource, rank, usageOf } from "./ranking";

const filterNames = ["namespace", "host"] as const;

export function Component() {
  const { pools: text } = useMessages();
  const navigate = useNavigate();
  const [namespace] = useUrlValue("namespace");
  const [host] = useUrlValue("host");
  const [shown, setShown] = useUrlValue("do");
  const filter = useMemo(
    () => ({ namespace: namespace || undefined, host: host || undefined }),
    [namespace, host],
  );
  const key = useMemo(() => ["pools", "list", filter] as const, [filter]);
  const fetchPage = useCallback(
    (after: string | null, signal?: AbortSignal) => fetchPools(filter, after, undefined, signal),
    [filter],
  );
  const list = usePaged<Pool>(key, fetchPage);
  const columns = usePoolColumns();
  const open = (pool: Pool) => void navigate(poolPath(pool.host, pool.namespace, pool.id));
  return (
    <Page
      title={text.title}
      isFilled
      beside={<Freshness updatedAt={list.updatedAt} />}
      actions={
        <>
          <ExportButton
            name="pools"
            rows={list.rows}
            fetchPage={(after) => fetchPools(filter, after, 1000)}
            columns={["namespace", "id", "host", "cpu", "memory", "cpu_weight", "memory_weight", "dry_run"]}
          />
          <Guarded need="limits">
            {(isAllowed) => (
              <Button type="primary" disabled={!isAllowed} onClick={() => setShown("set")}>
                {text.set}
              </Button>
            )}
          </Guarded>
        </>
      }
    >
      <div className="filters">
        <FilterInput name="namespace" label={text.filter.namespace} />
        <FilterInput name="host" label={text.filter.host} />
      </div>
      {list.error && list.rows.length === 0 ? (
        <Failure error={list.error} onRetry={() => void list.retry()} />
      ) : (
        <DataTable
          label={text.title}
          isMain
          columns={columns}
          {...list.table}
          rowKey={(pool) => `${pool.host} ${pool.namespace} ${pool.id}`}
          onOpen={open}
          empty={
            namespace || host ? (
              <EmptyFiltered names={filterNames} />
            ) : (
              <Empty title={text.emptyTitle}>{text.emptyText}</Empty>
            )
          }
        />
      )}
      {shown === "set" && <PoolDialog onClose={() => setShown(undefined)} />}
    </Page>
  );
}

function usePoolColumns(): Column<Pool>[] {
  const { pools: text } = useMessages();
  const { column } = text;
  const usage = (resource: Resource): Column<Pool> => ({
    key: resource,
    title: column[resource],
    width: "minmax(104px, 1.6fr)",
    render: (pool) => <PoolUsage pool={pool} resource={resource} />,
  });
  return [
    {
      key: "pool",
      title: column.pool,
      width: "minmax(90px, 1fr)",
      render: (pool) => (
        <Link to={poolPath(pool.host, pool.namespace, pool.id)}>
          {pool.namespace === pool.id ? pool.id : `${pool.namespace}/${pool.id}`}
        </Link>
      ),
    },
    {
      key: "host",
      title: column.host,
      width: "minmax(118px, 1fr)",
      from: 480,
      render: (pool) => (
        <Link to={hostPath(pool.host)} className="mono">
          {pool.host}
        </Link>
      ),
    },
    usage("cpu"),
    usage("memory"),
    {
      key: "members",
      title: column.members,
      width: "84px",
      isNumber: true,
      from: 760,
      render: (pool) => pool.usage?.members.length ?? "",
    },
    {
      key: "next",
      title: column.next,
      width: "minmax(140px, 1.4fr)",
      from: 900,
      render: (pool) => <Next pool={pool} />,
    },
    {
      key: "mode",
      title: column.mode,
      width: "124px",
      from: 1000,
      render: (pool) => (
        <Badge tone={pool.dry_run ? "warning" : "running"}>{pool.dry_run ? text.dryRun : text.acts}</Badge>
      ),
    },
  ];
}

const noLimits: OwnLimits = new Map();

/** By the resource that is nearer to its limit; the pool's page knows the members' own limits as well. */
function Next({ pool }: { pool: Pool }) {
  const filled = (resource: Resource) => usageOf(pool, resource) / (pool[resource] || 1);
  const resource = filled("cpu") > filled("memory") ? "cpu" : "memory";
  const weight = resource === "cpu" ? pool.cpu_weight : pool.memory_weight;
  const first = rank(pool, resource, noLimits)[0];
  if (weight !== "usage" || !first || first.score === 0) return <span className="muted">–</span>;
  return <Link to={processPath(first.process)}>{first.process}</Link>;
}

import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { type Pool, poolsQuery } from "@/api/server";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { Meter } from "@/ui/meter";
import { Page } from "@/ui/page";
import { hostPath, poolPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import { Empty, Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { PoolDialog } from "./pool-dialog";

export function Component() {
  const { pools: text, common } = useMessages();
  const navigate = useNavigate();
  const [namespace] = useUrlValue("namespace");
  const [host] = useUrlValue("host");
  const [isSetting, setSetting] = useState(false);
  const query = useQuery(poolsQuery({ namespace: namespace || undefined, host: host || undefined }, true));
  const columns = usePoolColumns();
  const open = (pool: Pool) => void navigate(poolPath(pool.host, pool.namespace, pool.id));
  return (
    <Page
      title={text.title}
      isFilled
      actions={
        <>
          <ExportButton
            name="pools"
            rows={query.data ?? []}
            columns={["namespace", "id", "host", "cpu", "memory", "cpu_weight", "memory_weight", "dry_run"]}
          />
          <Guarded need="limits">
            {(isAllowed) => (
              <Button type="primary" disabled={!isAllowed} onClick={() => setSetting(true)}>
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
      {query.error && !query.data ? (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      ) : (
        <DataTable
          label={text.title}
          isMain
          columns={columns}
          rows={query.data ?? []}
          rowKey={(pool) => `${pool.host} ${pool.namespace} ${pool.id}`}
          isLoading={query.isPending}
          onOpen={open}
          empty={
            namespace || host ? (
              <Empty title={common.emptyFiltered} />
            ) : (
              <Empty title={text.emptyTitle}>{text.emptyText}</Empty>
            )
          }
        />
      )}
      {isSetting && <PoolDialog onClose={() => setSetting(false)} />}
    </Page>
  );
}

function usePoolColumns(): Column<Pool>[] {
  const { pools: text } = useMessages();
  const { column } = text;
  return [
    {
      key: "pool",
      title: column.pool,
      width: "minmax(120px, 1fr)",
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
      render: (pool) => (
        <Link to={hostPath(pool.host)} className="mono">
          {pool.host}
        </Link>
      ),
    },
    {
      key: "cpu",
      title: column.cpu,
      width: "minmax(140px, 1fr)",
      isNumber: true,
      from: 480,
      render: (pool) => <Meter value={pool.usage?.cpu_percent ?? 0} limit={pool.cpu} label={column.cpu} />,
    },
    {
      key: "memory",
      title: column.memory,
      width: "minmax(140px, 1fr)",
      isNumber: true,
      from: 480,
      render: (pool) => (
        <Meter value={pool.usage?.memory_percent ?? 0} limit={pool.memory} label={column.memory} />
      ),
    },
    {
      key: "members",
      title: column.members,
      width: "90px",
      isNumber: true,
      from: 640,
      render: (pool) => pool.usage?.members.length ?? "",
    },
    {
      key: "mode",
      title: column.mode,
      width: "130px",
      from: 760,
      render: (pool) => (pool.dry_run ? text.dryRun : text.acts),
    },
  ];
}

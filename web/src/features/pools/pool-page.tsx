import { useQuery } from "@tanstack/react-query";
import { Button, Switch } from "antd";
import { Link, useParams } from "react-router";
import { evictionsQuery } from "@/api/events";
import { hostQuery } from "@/api/hosts";
import { fetchProcesses } from "@/api/processes";
import { hostPoolsQuery, type Pool } from "@/api/server";
import { exported } from "@/features/events/event-table";
import { ofEvent } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { CopyButton } from "@/ui/copy";
import { EventKindLabel } from "@/ui/event-kind";
import { ExportButton } from "@/ui/export";
import { formatPercent } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Page, Panel } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { Badge } from "@/ui/phase";
import { Guarded, placeOf } from "@/ui/rights";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, NotFound, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { PoolBar } from "./pool-bar";
import { PoolDeleteDialog } from "./pool-delete-dialog";
import { PoolDialog } from "./pool-dialog";
import { isOfPool, type OwnLimits, type Resource, rank, usageOf } from "./ranking";
import { formulaOf, RankingTable } from "./ranking-table";
import "./pools.css";

export function Component() {
  const { host = "", namespace = "", id = "" } = useParams();
  const { pools: text } = useMessages();
  const query = useQuery(hostPoolsQuery({ namespace, host }));
  const pool = query.data?.find((each) => each.id === id);
  const title = namespace === id ? id : `${namespace}/${id}`;
  const crumbs = [{ label: text.title, to: "/pools" }];
  if (!pool) {
    return (
      <Page title={title} crumbs={crumbs}>
        {query.isPending ? (
          <Skeleton lines={8} />
        ) : query.error ? (
          <Failure error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <NotFound />
        )}
      </Page>
    );
  }
  return <PoolView pool={pool} title={title} updatedAt={query.dataUpdatedAt} />;
}

type ViewProps = { pool: Pool; title: string; updatedAt: number };

function PoolView({ pool, title, updatedAt }: ViewProps) {
  const { pools: text } = useMessages();
  const [shown, setShown] = useUrlValue("do");
  const close = () => setShown(undefined);
  const business = useQuery(hostQuery(pool.host)).data?.business;
  const place = placeOf(pool.namespace, { host: pool.host, business });
  const limits = useOwnLimits(pool);
  return (
    <Page
      title={title}
      crumbs={[{ label: text.title, to: "/pools" }]}
      beside={
        <>
          <Link to={hostPath(pool.host)} className="mono">
            {pool.host}
          </Link>
          <CopyButton text={`${pool.namespace}/${pool.id}`} />
          <Freshness updatedAt={updatedAt} />
        </>
      }
      actions={
        <Guarded need="limits" place={place} where={pool.namespace}>
          {(isAllowed) => (
            <span className="row wrap">
              <span className="row" title={text.dryRunHelp}>
                <Switch
                  size="small"
                  checked={pool.dry_run}
                  disabled={!isAllowed}
                  aria-label={text.dryRun}
                  onChange={() => setShown("dry-run")}
                />
                {text.dryRun}
              </span>
              <Button disabled={!isAllowed} onClick={() => setShown("edit")}>
                {text.edit}
              </Button>
              <Button danger disabled={!isAllowed} onClick={() => setShown("delete")}>
                {text.delete}
              </Button>
            </span>
          )}
        </Guarded>
      }
    >
      <div className="pool-grid">
        <ResourcePanel pool={pool} resource="cpu" limits={limits} />
        <ResourcePanel pool={pool} resource="memory" limits={limits} />
      </div>
      <PoolHistory pool={pool} />
      {shown === "edit" && <PoolDialog pool={pool} onClose={close} />}
      {shown === "dry-run" && <PoolDialog pool={pool} wish={{ dry_run: !pool.dry_run }} onClose={close} />}
      {shown === "delete" && <PoolDeleteDialog pool={pool} title={title} onClose={close} />}
    </Page>
  );
}

/** Members' own limits, which the formula may divide by. */
function useOwnLimits(pool: Pool) {
  const query = useQuery({
    queryKey: ["pool-members", pool.host, pool.namespace],
    queryFn: ({ signal }) =>
      fetchProcesses({ namespace: pool.namespace, host: pool.host, full: true }, null, 1000, signal),
    staleTime: 30_000,
  });
  const own: OwnLimits = new Map(query.data?.rows.map((row) => [row.process, row.spec?.limits ?? {}]));
  return { own, isPending: query.isPending, error: query.data ? null : query.error, retry: query.refetch };
}

type ResourceProps = { pool: Pool; resource: Resource; limits: ReturnType<typeof useOwnLimits> };

function ResourcePanel({ pool, resource, limits }: ResourceProps) {
  const { pools: text } = useMessages();
  const limit = pool[resource];
  const used = usageOf(pool, resource);
  const weight = resource === "cpu" ? pool.cpu_weight : pool.memory_weight;
  const ranked = rank(pool, resource, limits.own);
  const next = ranked[0];
  // By usage alone the order is known without the members' own limits; by their limits it would be another one.
  const isRanked = weight === "usage" || !(limits.isPending || limits.error);
  return (
    <Panel
      title={text[resource]}
      extra={
        <b className={used > limit ? "tone-failed" : undefined}>
          {text.usageOf(formatPercent(used), formatPercent(limit))}
        </b>
      }
    >
      <div className="panel-body stack">
        <PoolBar label={text.membersStacked(text[resource])} parts={ranked} used={used} limit={limit} />
        <p className="pool-next">
          {used > limit ? (
            <Badge tone="failed">{pool.dry_run ? text.overDryRun : text.over}</Badge>
          ) : (
            <span className="muted">{text.room(formatPercent(limit - used))}</span>
          )}{" "}
          {isRanked &&
            (next && next.score > 0 ? text.nextIs(next.process, formulaOf(next)) : text.nobodyNext)}
        </p>
        <div className="row">
          <h3 className="grow">{text.ranking}</h3>
          {isRanked && (
            <ExportButton
              name={`ranking-of-${pool.id}-${resource}`}
              rows={ranked}
              columns={["process", "usage", "limit", "divisor", "score"]}
            />
          )}
        </div>
        {isRanked ? (
          <RankingTable ranked={ranked} />
        ) : limits.error ? (
          <Failure error={limits.error} onRetry={() => void limits.retry()} />
        ) : (
          <Skeleton />
        )}
        <p className="muted pool-formula">{text.formula[weight]}</p>
      </div>
    </Panel>
  );
}

/** Evictions and warnings, each with the ranking of its moment. */
function PoolHistory({ pool }: { pool: Pool }) {
  const { pools: text, events: eventText, terms } = useMessages();
  const { column } = eventText;
  const query = useQuery(evictionsQuery({ host: pool.host, type: "pool_limit_exceeded,pool_warning" }));
  const events = (query.data ?? []).filter((event) => isOfPool(event, pool));
  return (
    <Panel
      title={text.history}
      extra={<ExportButton name={`history-of-${pool.id}`} rows={events} columns={exported} />}
    >
      {query.isPending ? (
        <Skeleton />
      ) : query.error && !query.data ? (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      ) : events.length === 0 ? (
        <p className="muted panel-body pool-formula">{text.noHistory}</p>
      ) : (
        <SimpleTable
          label={text.history}
          rows={events}
          rowKey={(event) => String(event.id)}
          columns={[
            { key: "time", title: column.time, render: (event) => <TimeMs at={event.at_ms} /> },
            { key: "type", title: column.type, render: (event) => <EventKindLabel event={event} /> },
            { key: "content", title: column.content, render: (event) => terms.told(ofEvent(event)) },
            {
              key: "ranking",
              title: text.ranking,
              isMinor: true,
              render: (event) => <span className="muted">{event.details?.ranking ?? ""}</span>,
            },
          ]}
        />
      )}
    </Panel>
  );
}

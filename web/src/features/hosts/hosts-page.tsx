import { useQuery } from "@tanstack/react-query";
import { Button, Select, Tag } from "antd";
import { useCallback, useMemo } from "react";
import { Link, useNavigate } from "react-router";
import {
  businessesQuery,
  fetchHosts,
  type Host,
  hostStates,
  hostTroubles,
  NEVER_CONNECTED,
} from "@/api/hosts";
import { overviewQuery } from "@/api/overview";
import { type Concerns, usePaged } from "@/api/paged";
import { useMessages } from "@/settings/context";
import { DataTable } from "@/ui/data-table";
import { EmptyFiltered } from "@/ui/empty-filtered";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { LinkButton } from "@/ui/link-button";
import { Page } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import { Empty, Failure } from "@/ui/states";
import { useClearUrl, useUrlValue } from "@/ui/url-state";
import { useHostColumns } from "./columns";
import { UnservedHosts } from "./unserved";
import { HostViewSwitch, useHostView } from "./view-switch";

const concernsHost: Concerns<Host> = (host, event) =>
  event.host === host.host && event.type.startsWith("agent_");

const filterNames = ["state", "trouble", "business", "cloud", "version", "q"] as const;

export function Component() {
  return useHostView().isUnserved ? <UnservedHosts /> : <ServedHosts />;
}

function ServedHosts() {
  const { hosts: text, overview, common } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const counts = useQuery(overviewQuery).data?.hosts;
  const businesses = useQuery(businessesQuery).data ?? [];
  const [state, setState] = useUrlValue("state");
  const [trouble, setTrouble] = useUrlValue("trouble");
  const [business, setBusiness] = useUrlValue("business");
  const [version, setVersion] = useUrlValue("version");
  const [cloud] = useUrlValue("cloud");
  const [q] = useUrlValue("q");
  const clear = useClearUrl(filterNames);
  const filter = useMemo(
    () => ({
      state: hostStates.find((known) => known === state),
      trouble: hostTroubles.find((known) => known === trouble),
      business: business ? Number(business) : undefined,
      cloud: cloud ? Number(cloud) : undefined,
      version: version === NEVER_CONNECTED ? "" : version || undefined,
      q: q || undefined,
    }),
    [state, trouble, business, cloud, version, q],
  );
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  const key = useMemo(() => ["hosts", "list", filter] as const, [filter]);
  const fetchPage = useCallback(
    (after: string | null, signal?: AbortSignal) => fetchHosts(filter, after, undefined, signal),
    [filter],
  );
  const list = usePaged<Host>(key, fetchPage, 10_000, concernsHost);
  const columns = useHostColumns();
  return (
    <Page
      title={text.title}
      isFilled
      beside={
        <>
          {counts && <span className="muted">{text.counts(number(counts.online), number(counts.away))}</span>}
          <Freshness updatedAt={list.updatedAt} />
        </>
      }
      actions={
        <>
          <HostViewSwitch />
          <ExportButton
            name="hosts"
            rows={list.rows}
            fetchPage={(after) => fetchHosts(filter, after, 1000)}
            columns={[
              "host",
              "agent",
              "online",
              "business",
              "presence_changed_at",
              "enrolled_at",
              "certificate_expires_at",
            ]}
          />
          <Guarded need="admin">
            {(isAllowed) => (
              <LinkButton to="/enrol" type="primary" disabled={!isAllowed}>
                {text.enrol}
              </LinkButton>
            )}
          </Guarded>
        </>
      }
    >
      <div className="filters">
        <FilterInput name="q" label={text.filter.search} width={250} />
        <Select
          allowClear
          style={{ minWidth: 150 }}
          popupMatchSelectWidth={220}
          placeholder={text.filter.state}
          aria-label={text.filter.state}
          value={filter.state}
          onChange={(value: string | undefined) => setState(value)}
          options={hostStates.map((value) => ({
            value,
            label: text.state[value],
            count: counts ? number(counts[value] ?? 0) : "",
          }))}
          optionRender={({ data }) => (
            <span className="row">
              <span className="grow truncate">{data.label}</span>
              <span className="muted">{data.count}</span>
            </span>
          )}
        />
        <Select
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          style={{ minWidth: 140 }}
          placeholder={text.filter.business}
          aria-label={text.filter.business}
          value={business || undefined}
          onChange={(value: string | undefined) => setBusiness(value)}
          options={businesses.map((each) => ({ value: String(each.id), label: each.name }))}
        />
        <FilterInput name="cloud" label={text.filter.cloud} width={120} />
        {filter.trouble && (
          <Tag closable onClose={() => setTrouble(undefined)}>
            {overview.kind[filter.trouble]}
          </Tag>
        )}
        {version && (
          <Tag closable onClose={() => setVersion(undefined)}>
            {text.column.version} {version === NEVER_CONNECTED ? common.unknown : version}
          </Tag>
        )}
        {isFiltered && (
          <Button type="text" onClick={clear}>
            {common.clearFilters}
          </Button>
        )}
      </div>
      {list.error && list.rows.length === 0 ? (
        <Failure error={list.error} onRetry={() => void list.retry()} />
      ) : (
        <DataTable<Host>
          label={text.title}
          isMain
          columns={columns}
          {...list.table}
          rowKey={(host) => host.agent}
          rowClass={(host) => (host.online ? "" : "is-away")}
          onOpen={(host) => void navigate(hostPath(host.host))}
          empty={
            isFiltered ? (
              <EmptyFiltered names={filterNames} />
            ) : (
              <Empty title={text.emptyTitle}>
                <p>{text.emptyText}</p>
                <Link to="/enrol">{text.enrol}</Link>
              </Empty>
            )
          }
        />
      )}
    </Page>
  );
}

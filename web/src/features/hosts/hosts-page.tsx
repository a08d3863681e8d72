import { useQuery } from "@tanstack/react-query";
import { Button, Segmented, Select } from "antd";
import { useMemo } from "react";
import { Link, useNavigate } from "react-router";
import { allHostsQuery, businessesQuery, type Host } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { DataTable } from "@/ui/data-table";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { Page } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import { Empty, Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { useHostColumns } from "./columns";

export function Component() {
  const { hosts: text, common } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const query = useQuery(allHostsQuery);
  const businesses = useQuery(businessesQuery).data ?? [];
  const [state, setState] = useUrlValue("state");
  const [business, setBusiness] = useUrlValue("business");
  const [version] = useUrlValue("version");
  const [search] = useUrlValue("q");
  const all = query.data?.rows;
  const rows = useMemo(() => {
    const wanted = search.toLowerCase();
    return (all ?? []).filter(
      (host) =>
        (!state || (state === "online") === host.online) &&
        (!business || String(host.business ?? "") === business) &&
        (!version || host.facts?.agent_version === version) &&
        (!wanted ||
          `${host.host} ${host.facts?.hostname ?? ""} ${host.agent}`.toLowerCase().includes(wanted)),
    );
  }, [all, state, business, version, search]);
  const columns = useHostColumns();
  const online = all?.filter((host) => host.online).length ?? 0;
  return (
    <Page
      title={text.title}
      isFilled
      beside={
        all && <span className="muted">{text.counts(number(online), number(all.length - online))}</span>
      }
      actions={
        <>
          <ExportButton
            name="hosts"
            rows={rows}
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
              <Link to="/enrol">
                <Button type="primary" disabled={!isAllowed}>
                  {text.enrol}
                </Button>
              </Link>
            )}
          </Guarded>
        </>
      }
    >
      <div className="filters">
        <FilterInput name="q" label={text.filter.search} width={250} />
        <Segmented
          value={state}
          onChange={setState}
          options={[
            { value: "", label: common.all },
            { value: "online", label: text.online },
            { value: "away", label: text.away },
          ]}
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
      </div>
      {query.error && !all ? (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      ) : (
        <DataTable<Host>
          label={text.title}
          isMain
          columns={columns}
          rows={rows}
          rowKey={(host) => host.agent}
          rowClass={(host) => (host.online ? "" : "is-away")}
          isLoading={query.isPending}
          onOpen={(host) => void navigate(hostPath(host.host))}
          empty={
            all && all.length > 0 ? (
              <Empty title={common.emptyFiltered} />
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

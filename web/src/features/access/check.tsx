import { useQuery } from "@tanstack/react-query";
import { Select } from "antd";
import {
  appsQuery,
  type Grant,
  type GrantFilter,
  grantsQuery,
  operationClasses,
  usersQuery,
} from "@/api/access";
import { businessesQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { Panel } from "@/ui/page";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, Skeleton } from "@/ui/states";
import { useUrlNumber, useUrlValue } from "@/ui/url-state";
import { useBounds } from "./bounds";
import { useScopeName } from "./scope-name";

/** "What may X do where" and "who may do Y on Z", as the server judges calls. */
export function Check() {
  return (
    <div className="check-grid">
      <WhatMay />
      <WhoMay />
    </div>
  );
}

/** The grants, or what is shown before they are there: nobody is told to have none until that is known. */
function useGrants(filter: GrantFilter, isAsked = true) {
  const query = useQuery({ ...grantsQuery(filter), enabled: isAsked });
  const instead =
    query.data || !isAsked ? null : query.error ? (
      <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
    ) : (
      <Skeleton />
    );
  return { grants: query.data ?? [], instead };
}

function WhatMay() {
  const { access, terms } = useMessages();
  const text = access.check;
  const users = useQuery(usersQuery).data ?? [];
  const apps = useQuery(appsQuery).data ?? [];
  const [subject, setSubject] = useUrlValue("subject");
  const { grants, instead } = useGrants({ subject }, subject !== "");
  const through = useThrough();
  const subjects = [...users.map((user) => `user:${user.name}`), ...apps.map((app) => `app:${app.code}`)];
  const rows = operationClasses.map((right) => ({
    right,
    grants: grants.filter((grant) => grant.class === right),
  }));
  return (
    <Panel
      title={text.whatMay}
      extra={<ExportButton name="grants-of-one" rows={grants} columns={exportedGrants} />}
    >
      <div className="panel-body">
        <Select
          showSearch
          style={{ width: "100%" }}
          placeholder={text.subject}
          aria-label={text.subject}
          value={subject || undefined}
          onChange={setSubject}
          options={subjects.map((value) => ({ value, label: value }))}
        />
        {grants.some((grant) => grant.disabled) && <p className="tone-warning">{text.disabled}</p>}
      </div>
      {instead ?? (
        <SimpleTable
          label={text.whatMay}
          rows={rows}
          rowKey={(row) => row.right}
          columns={[
            {
              key: "right",
              title: text.right,
              render: (row) => <span title={terms.rightHelp[row.right]}>{terms.right[row.right]}</span>,
            },
            {
              key: "where",
              title: text.place,
              render: (row) =>
                row.grants.map(through).join("; ") || <span className="muted">{text.nothing}</span>,
            },
          ]}
        />
      )}
    </Panel>
  );
}

const exportedGrants = [
  "subject",
  "class",
  "role",
  "scope",
  "allow_users",
  "allow_roots",
  "disabled",
] as const;

function WhoMay() {
  const { access, terms } = useMessages();
  const text = access.check;
  const businesses = useQuery(businessesQuery).data ?? [];
  const [right, setRight] = useUrlValue("right", "operate");
  const [namespace] = useUrlValue("namespace");
  const [host] = useUrlValue("host");
  const [, setBusiness] = useUrlValue("business");
  const business = useUrlNumber("business");
  const cloud = useUrlNumber("cloud");
  const ofHost = host ? { host } : { business, cloud };
  const place = { namespace: namespace || undefined, ...ofHost };
  const isAnywhere = Object.values(place).every((value) => value === undefined);
  const { grants, instead } = useGrants({ class: right, ...(isAnywhere ? { everywhere: true } : place) });
  const through = useThrough();
  return (
    <Panel title={text.whoMay} extra={<ExportButton name="grants" rows={grants} columns={exportedGrants} />}>
      <div className="panel-body row wrap">
        <Select
          style={{ width: 140 }}
          aria-label={text.right}
          value={right}
          onChange={setRight}
          options={operationClasses.map((value) => ({ value, label: terms.right[value] }))}
        />
        <FilterInput name="namespace" label={text.namespace} width={130} />
        <FilterInput name="host" label={text.host} width={130} />
        {!host && (
          <>
            <Select
              allowClear
              showSearch={{ optionFilterProp: "label" }}
              style={{ minWidth: 120 }}
              placeholder={text.business}
              aria-label={text.business}
              value={business === undefined ? undefined : String(business)}
              onChange={(value: string | undefined) => setBusiness(value)}
              options={businesses.map((each) => ({ value: String(each.id), label: each.name }))}
            />
            <FilterInput name="cloud" label={text.cloud} width={110} />
          </>
        )}
      </div>
      <p className="muted check-note">{isAnywhere ? text.onEverything : text.onPlace}</p>
      {instead ?? (
        <SimpleTable
          label={text.whoMay}
          rows={grants}
          rowKey={(grant) => `${grant.binding} ${grant.class}`}
          empty={text.nobody}
          columns={[
            {
              key: "subject",
              title: text.subject,
              render: (grant) => (
                <span className="mono">
                  {grant.subject} {grant.disabled && <span className="tone-warning">{text.isDisabled}</span>}
                </span>
              ),
            },
            { key: "through", title: access.bindings.role, render: through },
          ]}
        />
      )}
    </Panel>
  );
}

/** The role and the scope of a grant, and what it is limited to. */
function useThrough(): (grant: Grant) => string {
  const { access } = useMessages();
  const scopeName = useScopeName();
  const boundsOf = useBounds();
  return (grant) => {
    const only = boundsOf(grant);
    const through = access.check.through(grant.role, scopeName(grant.scope));
    return only ? `${through} (${access.check.only(only)})` : through;
  };
}

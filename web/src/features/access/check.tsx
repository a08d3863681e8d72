import { useQuery } from "@tanstack/react-query";
import { AutoComplete, Select } from "antd";
import {
  appsQuery,
  bindingsQuery,
  type OperationClass,
  operationClasses,
  rolesQuery,
  usersQuery,
} from "@/api/access";
import { businessesQuery, businessSetsQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { Panel } from "@/ui/page";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, Skeleton } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { covers, grantsOf } from "./rights-of";
import { useScopeName } from "./scope-name";

/** "What may X do where" and "who may do Y on Z", worked out from bindings and roles. */
export function Check() {
  return (
    <div className="check-grid">
      <WhatMay />
      <WhoMay />
    </div>
  );
}

/** Bindings and roles; before they are there, or without them, nothing is said of who may do what. */
function useGrants() {
  const bindings = useQuery(bindingsQuery);
  const roles = useQuery(rolesQuery);
  const instead =
    bindings.data && roles.data ? null : bindings.error || roles.error ? (
      <Failure
        error={bindings.error ?? roles.error}
        need="admin"
        onRetry={() => void Promise.all([bindings.refetch(), roles.refetch()])}
      />
    ) : (
      <Skeleton />
    );
  return { bindings: bindings.data ?? [], roles: roles.data ?? [], instead };
}

function WhatMay() {
  const { access, terms } = useMessages();
  const text = access.check;
  const { bindings, roles, instead } = useGrants();
  const scopeName = useScopeName();
  const users = useQuery(usersQuery).data ?? [];
  const apps = useQuery(appsQuery).data ?? [];
  const [subject, setSubject] = useUrlValue("subject");
  const subjects = [...users.map((user) => `user:${user.name}`), ...apps.map((app) => `app:${app.code}`)];
  const rows = operationClasses.map((right) => ({
    right,
    grants: subject ? grantsOf(bindings, roles, right, subject) : [],
  }));
  return (
    <Panel title={text.whatMay}>
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
                row.grants.map((grant) => text.through(grant.role, scopeName(grant.scope))).join("; ") || (
                  <span className="muted">{text.nothing}</span>
                ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function WhoMay() {
  const { access, terms } = useMessages();
  const text = access.check;
  const { bindings, roles, instead } = useGrants();
  const scopeName = useScopeName();
  const businesses = useQuery(businessesQuery).data ?? [];
  const sets = useQuery(businessSetsQuery);
  const [right, setRight] = useUrlValue("right", "operate");
  const [place, setPlace] = useUrlValue("place", "everything");
  const places = ["everything", ...businesses.map((each) => `business:${each.id}`), "namespace:", "cloud:0"];
  const found = grantsOf(bindings, roles, right as OperationClass).filter((grant) =>
    covers(grant.scope, place, sets.data ?? []),
  );
  return (
    <Panel title={text.whoMay}>
      <div className="panel-body row">
        <Select
          style={{ width: 140 }}
          aria-label={text.right}
          value={right}
          onChange={setRight}
          options={operationClasses.map((value) => ({ value, label: terms.right[value] }))}
        />
        <AutoComplete
          className="grow"
          aria-label={text.place}
          value={place}
          onChange={setPlace}
          options={places.map((value) => ({ value, label: scopeName(value) }))}
        />
      </div>
      {sets.error && !sets.data && <Failure error={sets.error} onRetry={() => void sets.refetch()} />}
      {instead ?? (
        <SimpleTable
          label={text.whoMay}
          rows={found}
          rowKey={(grant) => `${grant.subject} ${grant.role} ${grant.scope}`}
          empty={text.nobody}
          columns={[
            {
              key: "subject",
              title: text.subject,
              render: (grant) => <span className="mono">{grant.subject}</span>,
            },
            {
              key: "through",
              title: access.bindings.role,
              render: (grant) => text.through(grant.role, scopeName(grant.scope)),
            },
          ]}
        />
      )}
    </Panel>
  );
}

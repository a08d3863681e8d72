import { useQueries, useQuery } from "@tanstack/react-query";
import { AutoComplete, Form, Select } from "antd";
import { useState } from "react";
import {
  appsQuery,
  type Binding,
  bindingsQuery,
  createBinding,
  deleteBinding,
  rolesQuery,
  usersQuery,
} from "@/api/access";
import type { Schemas } from "@/api/client";
import { businessesQuery, businessSetsQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { FilterInput } from "@/ui/filter-input";
import { FormDialog, required } from "@/ui/form-dialog";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { useAction } from "@/ui/use-action";
import { useBounds } from "./bounds";
import { useScopeName } from "./scope-name";
import { Section } from "./section";

export function Bindings() {
  const { access, common } = useMessages();
  const text = access.bindings;
  const query = useQuery(bindingsQuery);
  const scopeName = useScopeName();
  const { ask } = useAction();
  const [isAdding, setAdding] = useState(false);
  const [search] = useUrlValue("q");
  const boundsOf = useBounds();
  const isWanted = (each: Binding) => `${each.subject} ${each.role} ${each.scope}`.includes(search);
  const remove = (binding: Binding) =>
    ask(
      {
        title: text.deleteTitle,
        text: text.deleteText(binding.subject, binding.role, binding.scope),
        yes: common.delete,
      },
      () => deleteBinding(binding.id),
      ["bindings"],
    );
  return (
    <>
      <Section
        query={query}
        saved={{
          name: "bindings",
          isWanted,
          columns: ["id", "subject", "role", "scope", "allow_users", "allow_roots"],
        }}
        filter={
          <FilterInput name="q" label={common.list([text.subject, text.role, text.scope])} width={260} />
        }
        action={{ label: text.create, onClick: () => setAdding(true) }}
      >
        {(bindings) => (
          <SimpleTable
            label={access.tab.bindings}
            rows={bindings.filter(isWanted)}
            rowKey={(binding) => binding.id}
            columns={[
              {
                key: "subject",
                title: text.subject,
                render: (binding) => <span className="mono">{binding.subject}</span>,
              },
              { key: "role", title: text.role, render: (binding) => binding.role },
              { key: "scope", title: text.scope, render: (binding) => scopeName(binding.scope) },
              {
                key: "bounds",
                title: text.bounds,
                isMinor: true,
                render: boundsOf,
              },
            ]}
            actions={(binding) => (
              <RowButton isDangerous onClick={() => remove(binding)}>
                {common.delete}
              </RowButton>
            )}
          />
        )}
      </Section>
      {isAdding && <AddBinding onClose={() => setAdding(false)} />}
    </>
  );
}

function AddBinding({ onClose }: { onClose: () => void }) {
  const { access, common } = useMessages();
  const text = access.bindings;
  const { act } = useAction();
  const choices = useQueries({
    queries: [usersQuery, appsQuery, rolesQuery, businessesQuery, businessSetsQuery],
  });
  const failed = choices.find((choice) => choice.error && !choice.data);
  const users = choices[0].data ?? [];
  const apps = choices[1].data ?? [];
  const roles = choices[2].data ?? [];
  const businesses = choices[3].data ?? [];
  const sets = choices[4].data ?? [];
  const subjects = [...users.map((user) => `user:${user.name}`), ...apps.map((app) => `app:${app.code}`)];
  const scopes = [
    { value: "everything", label: "everything" },
    ...businesses.map((each) => ({
      value: `business:${each.id}`,
      label: `business:${each.id} (${each.name})`,
    })),
    ...sets.map((each) => ({ value: `set:${each.id}`, label: `set:${each.id} (${each.name})` })),
    { value: "namespace:", label: "namespace:…" },
    { value: "cloud:0", label: "cloud:0" },
  ];
  const add = async (fields: Schemas["NewBinding"]) =>
    (await act(() => createBinding(fields), ["bindings"])) !== undefined;
  return (
    <FormDialog title={text.create} yes={common.create} onSave={add} onClose={onClose}>
      {failed && <Failure error={failed.error} need="admin" onRetry={() => void failed.refetch()} />}
      <Form.Item name="subject" label={text.subject} extra={text.subjectHelp} rules={required}>
        <AutoComplete options={subjects.map((value) => ({ value }))} showSearch={{ filterOption: true }} />
      </Form.Item>
      <Form.Item name="role" label={text.role} rules={required}>
        <Select options={roles.map((role) => ({ value: role.name, label: role.name }))} />
      </Form.Item>
      <Form.Item name="scope" label={text.scope} extra={text.scopeHelp} rules={required}>
        <AutoComplete options={scopes} />
      </Form.Item>
      <Form.Item name="allow_users" label={text.allowUsers}>
        <Select mode="tags" tokenSeparators={[",", " "]} open={false} suffixIcon={null} />
      </Form.Item>
      <Form.Item name="allow_roots" label={text.allowRoots}>
        <Select mode="tags" tokenSeparators={[",", " "]} open={false} suffixIcon={null} />
      </Form.Item>
    </FormDialog>
  );
}

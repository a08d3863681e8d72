import { useQuery } from "@tanstack/react-query";
import { Checkbox, Form, Input } from "antd";
import { useState } from "react";
import { deleteRole, operationClasses, putRole, type Role, rolesQuery } from "@/api/access";
import { useMessages } from "@/settings/context";
import { FormDialog, required } from "@/ui/form-dialog";
import { Badge } from "@/ui/phase";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { useAction } from "@/ui/use-action";
import { Section } from "./section";

export function Roles() {
  const { access, common, terms } = useMessages();
  const text = access.roles;
  const query = useQuery(rolesQuery);
  const { ask } = useAction();
  const [editing, setEditing] = useState<Role | "new" | null>(null);
  const names: Record<string, string> = terms.right;
  const remove = (role: Role) =>
    ask(
      { title: text.deleteTitle(role.name), text: text.deleteText, yes: common.delete },
      () => deleteRole(role.name),
      ["roles"],
    );
  return (
    <Section
      query={query}
      saved={{ name: "roles", columns: ["name", "classes", "built_in"] }}
      action={{ label: text.create, onClick: () => setEditing("new") }}
    >
      {(roles) => (
        <>
          <SimpleTable
            label={access.tab.roles}
            rows={roles}
            rowKey={(role) => role.name}
            columns={[
              {
                key: "name",
                title: text.name,
                render: (role) => (
                  <span className="row wrap">
                    {role.name}
                    {role.built_in && (
                      <span className="is-minor">
                        <Badge tone="idle">{text.builtIn}</Badge>
                      </span>
                    )}
                  </span>
                ),
              },
              {
                key: "classes",
                title: text.classes,
                render: (role) => common.list(role.classes.map((kind) => names[kind] ?? kind)),
              },
            ]}
            actions={(role) =>
              !role.built_in && (
                <>
                  <RowButton onClick={() => setEditing(role)}>{common.edit}</RowButton>
                  <RowButton isDangerous onClick={() => remove(role)}>
                    {common.delete}
                  </RowButton>
                </>
              )
            }
          />
          {editing && (
            <RoleDialog role={editing === "new" ? null : editing} onClose={() => setEditing(null)} />
          )}
        </>
      )}
    </Section>
  );
}

type Fields = { name: string; classes: string[] };

function RoleDialog({ role, onClose }: { role: Role | null; onClose: () => void }) {
  const { access, terms } = useMessages();
  const { act } = useAction();
  const save = async ({ name, classes }: Fields) =>
    (await act(() => putRole(name.trim(), classes), ["roles"])) !== undefined;
  return (
    <FormDialog
      title={role?.name ?? access.roles.create}
      initial={role ?? { classes: ["read"] }}
      onSave={save}
      onClose={onClose}
    >
      <Form.Item name="name" label={access.roles.name} rules={required}>
        <Input disabled={role !== null} />
      </Form.Item>
      <Form.Item name="classes" label={access.roles.classes}>
        <Checkbox.Group
          className="column-picker"
          options={operationClasses.map((kind) => ({
            value: kind,
            label: `${terms.right[kind]}: ${terms.rightHelp[kind]}`,
          }))}
        />
      </Form.Item>
    </FormDialog>
  );
}

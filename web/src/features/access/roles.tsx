import { useQuery } from "@tanstack/react-query";
import { Button, Checkbox, Form, Input, Modal } from "antd";
import { useState } from "react";
import {
  deleteRole,
  type OperationClass,
  operationClasses,
  putRole,
  type Role,
  rolesQuery,
} from "@/api/access";
import { useMessages } from "@/settings/context";
import { Badge } from "@/ui/phase";
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
              { key: "name", title: text.name, render: (role) => role.name },
              {
                key: "classes",
                title: text.classes,
                render: (role) => role.classes.map((kind) => names[kind] ?? kind).join(", "),
              },
              {
                key: "built-in",
                title: "",
                isMinor: true,
                render: (role) => (role.built_in ? <Badge tone="idle">{text.builtIn}</Badge> : ""),
              },
              {
                key: "actions",
                title: "",
                isNumber: true,
                render: (role) =>
                  !role.built_in && (
                    <>
                      <Button size="small" type="text" onClick={() => setEditing(role)}>
                        {common.edit}
                      </Button>
                      <Button size="small" type="text" danger onClick={() => remove(role)}>
                        {common.delete}
                      </Button>
                    </>
                  ),
              },
            ]}
          />
          {editing && (
            <RoleDialog role={editing === "new" ? null : editing} onClose={() => setEditing(null)} />
          )}
        </>
      )}
    </Section>
  );
}

type Fields = { name: string; classes: OperationClass[] };

function RoleDialog({ role, onClose }: { role: Role | null; onClose: () => void }) {
  const { access, common, terms } = useMessages();
  const { act } = useAction();
  const [form] = Form.useForm<Fields>();
  const save = async ({ name, classes }: Fields) => {
    if (await act(() => putRole(name.trim(), classes), ["roles"])) onClose();
  };
  return (
    <Modal
      open
      title={role?.name ?? access.roles.create}
      okText={common.save}
      cancelText={common.cancel}
      onCancel={onClose}
      onOk={() => form.submit()}
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={role ?? { classes: ["read"] }}
        onFinish={(fields) => void save(fields)}
      >
        <Form.Item name="name" label={access.roles.name} rules={[{ required: true, message: "" }]}>
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
      </Form>
    </Modal>
  );
}

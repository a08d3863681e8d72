import { EllipsisOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Button, Drawer, Dropdown, Form, Input } from "antd";
import { useState } from "react";
import { createUser, deleteUser, disableUser, type User, usersQuery } from "@/api/access";
import { useMessages } from "@/settings/context";
import { FormDialog, required } from "@/ui/form-dialog";
import { Badge } from "@/ui/phase";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { useAction } from "@/ui/use-action";
import { PasswordDialog } from "./password-dialog";
import { Section } from "./section";
import { UserTokens } from "./user-tokens";

export function Users() {
  const { access, common } = useMessages();
  const text = access.users;
  const query = useQuery(usersQuery);
  const { act, ask } = useAction();
  const [isAdding, setAdding] = useState(false);
  const [passwordOf, setPasswordOf] = useState<string | null>(null);
  const [tokensOf, setTokensOf] = useUrlValue("tokens");
  const remove = (user: User) =>
    ask(
      { title: text.deleteTitle(user.name), text: text.deleteText, yes: common.delete },
      () => deleteUser(user.name),
      ["users"],
    );
  return (
    <Section
      query={query}
      saved={{ name: "users", columns: ["name", "disabled", "created_at"] }}
      action={{ label: text.create, onClick: () => setAdding(true) }}
    >
      {(users) => (
        <>
          <SimpleTable
            label={access.tab.users}
            rows={users}
            rowKey={(user) => user.name}
            columns={[
              { key: "name", title: text.name, render: (user) => user.name },
              {
                key: "state",
                title: text.state,
                render: (user) => (
                  <Badge tone={user.disabled ? "idle" : "running"}>
                    {user.disabled ? text.disabled : text.active}
                  </Badge>
                ),
              },
              {
                key: "created",
                title: text.created,
                isNumber: true,
                isMinor: true,
                render: (user) => <Time at={user.created_at} />,
              },
            ]}
            actions={(user) => (
              <>
                <RowButton onClick={() => setTokensOf(user.name)}>{text.tokens}</RowButton>
                <Dropdown
                  trigger={["click"]}
                  menu={{
                    items: [
                      {
                        key: "password",
                        label: text.password,
                        onClick: () => setPasswordOf(user.name),
                      },
                      {
                        key: "disable",
                        label: user.disabled ? text.enable : text.disable,
                        onClick: () => void act(() => disableUser(user.name, !user.disabled), ["users"]),
                      },
                      {
                        key: "delete",
                        label: `${common.delete}…`,
                        danger: true,
                        onClick: () => remove(user),
                      },
                    ],
                  }}
                >
                  <Button
                    size="small"
                    type="text"
                    icon={<EllipsisOutlined />}
                    aria-label={`${common.actions}: ${user.name}`}
                  />
                </Dropdown>
              </>
            )}
          />
          {passwordOf && <PasswordDialog name={passwordOf} onClose={() => setPasswordOf(null)} />}
          {isAdding && <AddUser onClose={() => setAdding(false)} />}
          <Drawer
            open={tokensOf !== ""}
            onClose={() => setTokensOf(undefined)}
            size="large"
            title={`${text.tokens}: ${tokensOf}`}
          >
            {tokensOf && <UserTokens name={tokensOf} />}
          </Drawer>
        </>
      )}
    </Section>
  );
}

function AddUser({ onClose }: { onClose: () => void }) {
  const { access, common } = useMessages();
  const { act } = useAction();
  const add = async ({ name }: { name: string }) =>
    (await act(() => createUser(name.trim()), ["users"])) !== undefined;
  return (
    <FormDialog title={access.users.create} yes={common.create} onSave={add} onClose={onClose}>
      <Form.Item name="name" label={access.users.name} rules={required}>
        <Input autoFocus />
      </Form.Item>
    </FormDialog>
  );
}

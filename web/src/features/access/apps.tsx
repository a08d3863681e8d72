import { useQuery } from "@tanstack/react-query";
import { Button, Checkbox, Form, Input, Modal } from "antd";
import { useState } from "react";
import { type App, appsQuery, createApp, deleteApp, rotateApp } from "@/api/access";
import { useMessages } from "@/settings/context";
import { Badge } from "@/ui/phase";
import { Secret } from "@/ui/secret";
import { SimpleTable } from "@/ui/simple-table";
import { Time } from "@/ui/time";
import { useAction } from "@/ui/use-action";
import { Section } from "./section";

export function Apps() {
  const { access, common } = useMessages();
  const text = access.apps;
  const query = useQuery(appsQuery);
  const { ask } = useAction();
  const [isAdding, setAdding] = useState(false);
  const [secret, setSecret] = useState("");
  const rotate = (app: App) =>
    ask(
      { title: text.rotateTitle(app.code), text: text.rotateText, yes: text.rotate },
      async () => setSecret((await rotateApp(app.code)).secret),
      ["apps"],
    );
  const remove = (app: App) =>
    ask(
      { title: text.deleteTitle(app.code), text: text.deleteText, yes: common.delete },
      () => deleteApp(app.code),
      ["apps"],
    );
  return (
    <>
      {secret && <Secret note={text.secretOnce} value={secret} />}
      <Section
        query={query}
        saved={{ name: "apps", columns: ["code", "trusted", "created_at"] }}
        action={{ label: text.create, onClick: () => setAdding(true) }}
      >
        {(apps) => (
          <SimpleTable
            label={access.tab.apps}
            rows={apps}
            rowKey={(app) => app.code}
            columns={[
              { key: "code", title: text.code, render: (app) => <span className="mono">{app.code}</span> },
              {
                key: "trusted",
                title: "",
                render: (app) => (app.trusted ? <Badge tone="warning">{text.trusted}</Badge> : ""),
              },
              {
                key: "created",
                title: access.users.created,
                isNumber: true,
                isMinor: true,
                render: (app) => <Time at={app.created_at} />,
              },
              {
                key: "actions",
                title: "",
                isNumber: true,
                render: (app) => (
                  <>
                    <Button size="small" type="text" onClick={() => rotate(app)}>
                      {text.rotate}
                    </Button>
                    <Button size="small" type="text" danger onClick={() => remove(app)}>
                      {common.delete}
                    </Button>
                  </>
                ),
              },
            ]}
          />
        )}
      </Section>
      {isAdding && <AddApp onClose={() => setAdding(false)} onSecret={setSecret} />}
    </>
  );
}

type Fields = { code: string; trusted?: boolean };

function AddApp({ onClose, onSecret }: { onClose: () => void; onSecret: (secret: string) => void }) {
  const { access, common } = useMessages();
  const { act } = useAction();
  const [form] = Form.useForm<Fields>();
  const add = async ({ code, trusted }: Fields) => {
    const made = await act(() => createApp({ code: code.trim(), trusted: trusted ?? false }), ["apps"]);
    if (!made) return;
    onSecret(made.secret);
    onClose();
  };
  return (
    <Modal
      open
      title={access.apps.create}
      okText={common.create}
      cancelText={common.cancel}
      onCancel={onClose}
      onOk={() => form.submit()}
    >
      <Form form={form} layout="vertical" onFinish={(fields) => void add(fields)}>
        <Form.Item name="code" label={access.apps.code} rules={[{ required: true, message: "" }]}>
          <Input autoFocus className="mono" />
        </Form.Item>
        <Form.Item name="trusted" valuePropName="checked" extra={access.apps.trustedHelp}>
          <Checkbox>{access.apps.trusted}</Checkbox>
        </Form.Item>
      </Form>
    </Modal>
  );
}

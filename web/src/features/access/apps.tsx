import { useQuery } from "@tanstack/react-query";
import { Checkbox, Form, Input } from "antd";
import { useState } from "react";
import { type App, appsQuery, createApp, deleteApp, rotateApp } from "@/api/access";
import { useMessages } from "@/settings/context";
import { FormDialog, required } from "@/ui/form-dialog";
import { Badge } from "@/ui/phase";
import { RowButton } from "@/ui/row-button";
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
              {
                key: "code",
                title: text.code,
                render: (app) => (
                  <span className="row wrap">
                    <span className="mono">{app.code}</span>
                    {app.trusted && <Badge tone="warning">{text.trusted}</Badge>}
                  </span>
                ),
              },
              {
                key: "created",
                title: access.users.created,
                isNumber: true,
                isMinor: true,
                render: (app) => <Time at={app.created_at} />,
              },
            ]}
            actions={(app) => (
              <>
                <RowButton onClick={() => rotate(app)}>{text.rotate}</RowButton>
                <RowButton isDangerous onClick={() => remove(app)}>
                  {common.delete}
                </RowButton>
              </>
            )}
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
  const add = async ({ code, trusted }: Fields) => {
    const made = await act(() => createApp({ code: code.trim(), trusted: trusted ?? false }), ["apps"]);
    if (made) onSecret(made.secret);
    return made !== undefined;
  };
  return (
    <FormDialog title={access.apps.create} yes={common.create} onSave={add} onClose={onClose}>
      <Form.Item name="code" label={access.apps.code} rules={required}>
        <Input autoFocus className="mono" />
      </Form.Item>
      <Form.Item name="trusted" valuePropName="checked" extra={access.apps.trustedHelp}>
        <Checkbox>{access.apps.trusted}</Checkbox>
      </Form.Item>
    </FormDialog>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Button, Form, Input, Select } from "antd";
import { useState } from "react";
import { createSignInLink, createUserToken, deleteUserToken, userTokensQuery } from "@/api/access";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { RowButton } from "@/ui/row-button";
import { Secret } from "@/ui/secret";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { useAction } from "@/ui/use-action";

const DAY_SECS = 86_400;

/** The tokens of a user, and a new one, which is shown once. */
export function UserTokens({ name }: { name: string }) {
  const { access, common } = useMessages();
  const text = access.users;
  const { act, ask } = useAction();
  const tokens = useQuery(userTokensQuery(name));
  const [secret, setSecret] = useState("");
  const [link, setLink] = useState("");
  const key = ["users", name, "tokens"];
  const make = async ({ note, days }: { note?: string; days: number }) => {
    const body = { note: note ?? "", ttl_secs: days > 0 ? days * DAY_SECS : undefined };
    const made = await act(() => createUserToken(name, body), key);
    if (made) setSecret(made.token);
  };
  const makeLink = async () => {
    const made = await act(() => createSignInLink(name), key);
    if (made) setLink(location.origin + made.path);
  };
  const remove = (id: string, title: string) =>
    ask(
      { title: text.deleteTokenTitle(title), text: text.deleteTokenText, yes: common.delete },
      () => deleteUserToken(name, id),
      key,
    );
  return (
    <div className="stack">
      <Form layout="vertical" initialValues={{ days: 30 }} onFinish={(fields) => void make(fields)}>
        <div className="token-form">
          <Form.Item name="note" label={text.note}>
            <Input />
          </Form.Item>
          <Form.Item name="days" label={text.ttl}>
            <Select
              options={[1, 7, 30, 90, 365, 0].map((days) => ({
                value: days,
                label: days === 0 ? text.noEnd : text.days(days),
              }))}
            />
          </Form.Item>
          <Form.Item label=" " className="token-buttons">
            <span className="row">
              <Button type="primary" htmlType="submit">
                {text.newToken}
              </Button>
              <Button onClick={() => void makeLink()}>{text.link}</Button>
            </span>
          </Form.Item>
        </div>
      </Form>
      {link && <Secret note={text.linkOnce} value={link} />}
      {secret && <Secret note={text.tokenOnce} value={secret} />}
      {tokens.isPending && <Skeleton lines={2} />}
      {tokens.error && !tokens.data && (
        <Failure error={tokens.error} need="admin" onRetry={() => void tokens.refetch()} />
      )}
      {tokens.data && tokens.data.length > 0 && (
        <div className="row">
          <span className="grow" />
          <ExportButton
            name={`tokens-of-${name}`}
            rows={tokens.data}
            columns={["id", "note", "created_at", "expires_at"]}
          />
        </div>
      )}
      {tokens.data && (
        <SimpleTable
          label={text.tokens}
          rows={tokens.data}
          rowKey={(token) => token.id}
          empty={text.noTokens}
          columns={[
            {
              key: "note",
              title: text.note,
              render: (token) => token.note || <span className="mono muted">{token.id}</span>,
            },
            {
              key: "created",
              title: text.created,
              isNumber: true,
              render: (token) => <Time at={token.created_at} />,
            },
            {
              key: "ends",
              title: text.expires,
              isNumber: true,
              render: (token) => (token.expires_at ? <Time at={token.expires_at} /> : text.noEnd),
            },
          ]}
          actions={(token) => (
            <RowButton isDangerous onClick={() => remove(token.id, token.note || token.id)}>
              {common.delete}
            </RowButton>
          )}
        />
      )}
    </div>
  );
}

import { useQuery } from "@tanstack/react-query";
import { deleteJoinToken, type JoinToken, joinTokensQuery } from "@/api/access";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { Panel } from "@/ui/page";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, Skeleton } from "@/ui/states";
import { Time, useNow } from "@/ui/time";
import { useAction } from "@/ui/use-action";
import { useBusinessName } from "@/ui/use-business-name";

/** Every join token, without its secret. */
export function TokenList() {
  const { enrol: text, common } = useMessages();
  const { ask } = useAction();
  const businessName = useBusinessName();
  const now = useNow();
  const { data, error, isPending, refetch } = useQuery(joinTokensQuery);
  const purposeOf = ({ host, relay }: JoinToken) =>
    host ? text.purpose.host(host) : relay ? text.purpose.relays : text.purpose.agents;
  const revoke = (id: string) =>
    ask({ title: text.revokeTitle(id), text: text.revokeText, yes: text.revoke }, () => deleteJoinToken(id), [
      "join-tokens",
    ]);
  return (
    <Panel
      title={text.tokens}
      extra={
        <ExportButton
          name="join-tokens"
          rows={data ?? []}
          columns={["id", "used", "uses", "refused", "cloud_id", "business", "host", "relay", "expires_at"]}
        />
      }
    >
      {isPending && <Skeleton lines={3} />}
      {error && !data && <Failure error={error} need="admin" onRetry={() => void refetch()} />}
      {data && (
        <SimpleTable
          label={text.tokens}
          rows={data}
          rowKey={(token) => token.id}
          empty={text.noTokens}
          columns={[
            { key: "id", title: text.column.id, render: (token) => <span className="mono">{token.id}</span> },
            {
              key: "used",
              title: text.column.used,
              isNumber: true,
              render: (token) => `${token.used} / ${token.uses}`,
            },
            {
              key: "refused",
              title: text.column.refused,
              isNumber: true,
              isMinor: true,
              render: (token) => token.refused,
            },
            {
              key: "cloud",
              title: text.column.cloud,
              isNumber: true,
              isMinor: true,
              render: (token) => token.cloud_id ?? common.any,
            },
            {
              key: "business",
              title: text.column.business,
              isMinor: true,
              render: (token) => businessName(token.business),
            },
            {
              key: "purpose",
              title: text.column.purpose,
              isMinor: true,
              render: (token) => purposeOf(token),
            },
            {
              key: "expires",
              title: text.column.expires,
              isNumber: true,
              render: (token) =>
                token.expires_at * 1000 < now ? (
                  <span className="muted">{text.expired}</span>
                ) : (
                  <Time at={token.expires_at} />
                ),
            },
          ]}
          actions={(token) => (
            <RowButton isDangerous onClick={() => revoke(token.id)}>
              {text.revoke}
            </RowButton>
          )}
        />
      )}
    </Panel>
  );
}

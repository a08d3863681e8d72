import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { useState } from "react";
import { removeWebhook, type Webhook, webhooksQuery } from "@/api/access";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { Page } from "@/ui/page";
import { Guarded } from "@/ui/rights";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { useAction } from "@/ui/use-action";
import { WebhookDialog } from "./webhook-dialog";
import { TestButton, TestReport, type TestResult } from "./webhook-test";
import "./webhooks.css";

export function Component() {
  const { webhooks: text } = useMessages();
  const query = useQuery(webhooksQuery);
  const [isAdding, setAdding] = useState(false);
  return (
    <Page
      title={text.title}
      actions={
        <>
          <ExportButton
            name="webhooks"
            rows={query.data ?? []}
            columns={["id", "url", "types", "namespace", "format", "signed", "created_at", "cursor"]}
          />
          <Guarded need="admin">
            {(isAllowed) => (
              <Button type="primary" disabled={!isAllowed} onClick={() => setAdding(true)}>
                {text.add}
              </Button>
            )}
          </Guarded>
        </>
      }
    >
      {query.isPending && <Skeleton />}
      {query.error && !query.data && (
        <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
      )}
      {query.data?.length === 0 && <Empty title={text.emptyTitle}>{text.emptyText}</Empty>}
      {query.data && query.data.length > 0 && <List webhooks={query.data} />}
      {isAdding && <WebhookDialog onClose={() => setAdding(false)} />}
    </Page>
  );
}

function List({ webhooks }: { webhooks: Webhook[] }) {
  const { webhooks: text, common, terms } = useMessages();
  const { ask } = useAction();
  const [result, setResult] = useState<TestResult | null>(null);
  const names: Record<string, string> = terms.event;
  const remove = (webhook: Webhook) =>
    ask(
      { title: text.deleteTitle, text: text.deleteText(webhook.url), yes: text.remove },
      () => removeWebhook(webhook.id),
      ["webhooks"],
    );
  return (
    <>
      <div className="panel">
        <SimpleTable
          label={text.title}
          rows={webhooks}
          rowKey={(webhook) => webhook.id}
          columns={[
            {
              key: "url",
              title: text.column.url,
              render: (webhook) => <span className="mono webhook-url">{webhook.url}</span>,
            },
            {
              key: "types",
              title: text.column.types,
              isMinor: true,
              render: (webhook) =>
                common.list((webhook.types ?? []).map((type) => names[type] ?? type)) || text.allTypes,
            },
            {
              key: "namespace",
              title: text.column.namespace,
              isMinor: true,
              render: (webhook) => webhook.namespace ?? common.all,
            },
            {
              key: "format",
              title: text.column.format,
              isMinor: true,
              render: (webhook) => (webhook.format === "gse" ? text.gse : text.native),
            },
            {
              key: "signed",
              title: text.column.signed,
              isMinor: true,
              render: (webhook) => (webhook.signed ? common.yes : common.no),
            },
            {
              key: "cursor",
              title: text.column.cursor,
              isNumber: true,
              isMinor: true,
              render: (webhook) => webhook.cursor,
            },
            {
              key: "created",
              title: text.column.created,
              isNumber: true,
              isMinor: true,
              render: (webhook) => <Time at={webhook.created_at} />,
            },
          ]}
          actions={(webhook) => (
            <>
              <TestButton webhook={webhook} onResult={setResult} />
              <RowButton isDangerous onClick={() => remove(webhook)}>
                {text.remove}
              </RowButton>
            </>
          )}
        />
      </div>
      <TestReport result={result} />
    </>
  );
}

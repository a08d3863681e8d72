import { useMutation } from "@tanstack/react-query";
import { Button } from "antd";
import { testWebhook, type Webhook, type WebhookTested } from "@/api/access";
import { ofFailure } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Badge } from "@/ui/phase";

/** What came of the last test of a webhook: the answer, or why there was none. */
export type TestResult = { webhook: Webhook; tested?: WebhookTested; refused?: string };

type Props = { webhook: Webhook; onResult: (result: TestResult) => void };

/** Sends one request that is marked as a test. */
export function TestButton({ webhook, onResult }: Props) {
  const { webhooks: text } = useMessages();
  const { mutate, isPending } = useMutation({
    mutationFn: () => testWebhook(webhook.id),
    onSuccess: (tested) => onResult({ webhook, tested }),
    onError: (error) => onResult({ webhook, refused: error.message }),
  });
  return (
    <Button size="small" type="text" loading={isPending} onClick={() => mutate()}>
      {text.test}
    </Button>
  );
}

/** Whether events would arrive, with the receiver's status, the time it took and what went wrong. */
export function TestReport({ result }: { result: TestResult | null }) {
  const { webhooks: text, common, terms } = useMessages();
  const number = useNumbers();
  const { webhook, tested, refused } = result ?? {};
  return (
    <div role="status" className={result ? "panel panel-body webhook-report" : undefined}>
      {tested && (
        <Badge tone={tested.delivered ? "running" : "failed"}>
          {tested.delivered ? text.delivered : text.notDelivered}
        </Badge>
      )}
      {webhook && <span className="mono webhook-url">{webhook.url}</span>}
      {tested && (
        <span className="muted">
          {tested.status ? `HTTP ${tested.status} · ` : ""}
          {common.millis(number(tested.took_ms))}
        </span>
      )}
      {tested?.error && <span>{terms.told(ofFailure(tested))}</span>}
      {refused && <span className="tone-failed">{refused}</span>}
    </div>
  );
}

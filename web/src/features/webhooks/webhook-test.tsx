import { useMutation } from "@tanstack/react-query";
import { Button } from "antd";
import { testWebhook, type WebhookTested } from "@/api/access";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Badge } from "@/ui/phase";

/** Sends one request that is marked as a test, and shows what came of it beside the button. */
export function WebhookTest({ id }: { id: string }) {
  const { webhooks: text } = useMessages();
  const { mutate, data, error, isPending } = useMutation({ mutationFn: () => testWebhook(id) });
  return (
    <div className="webhook-test">
      <Button size="small" loading={isPending} onClick={() => mutate()}>
        {text.test}
      </Button>
      <span role="status">
        {data && !isPending && <Result tested={data} />}
        {error && !isPending && <span className="tone-failed">{error.message}</span>}
      </span>
    </div>
  );
}

function Result({ tested }: { tested: WebhookTested }) {
  const { webhooks: text, common } = useMessages();
  const number = useNumbers();
  return (
    <>
      <span className="row wrap">
        <Badge tone={tested.delivered ? "running" : "failed"}>
          {tested.delivered ? text.delivered : text.notDelivered}
        </Badge>
        <span className="muted">
          {tested.status ? `HTTP ${tested.status} · ` : ""}
          {common.millis(number(tested.took_ms))}
        </span>
      </span>
      {tested.error && <span className="webhook-error">{tested.error}</span>}
    </>
  );
}

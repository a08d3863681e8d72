import { useQueryClient } from "@tanstack/react-query";
import { App, Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import { type OperationRequest, retryTask, runOperation } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { taskPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import { useTypedCount } from "@/ui/typed-count";
import type { OperateForm } from "./request";
import type { Plan } from "./use-plan";

/** `crypto.randomUUID` is there only over HTTPS and on this machine. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** How many targets the call reaches. */
export function countOf(form: OperateForm, { targets, counts }: Plan): number {
  const allowed = targets.length - counts.cordoned - counts.forbidden;
  // A retry brings the specs of its task along, so it may reach what is not registered any more.
  return form.by === "retry" ? allowed : allowed - counts.refused;
}

/** Makes the task and returns its id. */
async function start(form: OperateForm, requests: OperationRequest[]): Promise<string> {
  if (form.by === "retry") return (await retryTask(form.retry)).task_id;
  const [request] = requests;
  if (!request) throw new Error("nothing to operate");
  return runOperation(request, randomKey());
}

type Props = { form: OperateForm; requests: OperationRequest[]; plan: Plan; isPlanning: boolean };

export function RunPlan({ form, requests, plan, isPlanning }: Props) {
  const { operate: text, tasks, terms } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const client = useQueryClient();
  const { message } = App.useApp();
  const [isRunning, setRunning] = useState(false);
  const count = countOf(form, plan);
  const isQuery = requests.every((request) => request.operation === "status");
  const { isConfirmed, field } = useTypedCount(isQuery ? 0 : count);
  const isHarsh = requests.some(({ operation }) => operation === "stop" || operation === "kill");
  const name =
    form.by === "retry"
      ? tasks.retry(number(count))
      : text.button(terms.operation[form.operation], number(count));

  const run = async () => {
    setRunning(true);
    try {
      const task = await start(form, requests);
      void client.invalidateQueries({ queryKey: ["tasks"] });
      await navigate(taskPath(task));
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    } finally {
      setRunning(false);
    }
  };

  return (
    <div className="row wrap">
      {field}
      <Guarded need={isQuery ? "read" : "operate"}>
        {(isAllowed) => (
          <Button
            type="primary"
            danger={isHarsh}
            disabled={!isAllowed || !isConfirmed || count === 0 || isPlanning}
            loading={isRunning}
            onClick={() => void run()}
          >
            {isRunning ? text.running : name}
          </Button>
        )}
      </Guarded>
    </div>
  );
}

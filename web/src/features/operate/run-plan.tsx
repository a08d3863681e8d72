import { useQueryClient } from "@tanstack/react-query";
import { App, Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import { type OperationRequest, runOperation } from "@/api/tasks";
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

type Props = { form: OperateForm; request: OperationRequest; plan: Plan; isPlanning: boolean };

export function RunPlan({ form, request, plan, isPlanning }: Props) {
  const { operate: text, terms } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const client = useQueryClient();
  const { message } = App.useApp();
  const [isRunning, setRunning] = useState(false);
  const count = plan.targets.length - plan.counts.refused;
  const { isConfirmed, field } = useTypedCount(form.operation === "status" ? 0 : count);
  const isHarsh = form.operation === "stop" || form.operation === "kill";

  const run = async () => {
    setRunning(true);
    try {
      const task = await runOperation(request, randomKey());
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
      <Guarded need={form.operation === "status" ? "read" : "operate"}>
        {(isAllowed) => (
          <Button
            type="primary"
            danger={isHarsh}
            disabled={!isAllowed || !isConfirmed || count === 0 || isPlanning}
            loading={isRunning}
            onClick={() => void run()}
          >
            {isRunning ? text.running : text.button(terms.operation[form.operation], number(count))}
          </Button>
        )}
      </Guarded>
    </div>
  );
}

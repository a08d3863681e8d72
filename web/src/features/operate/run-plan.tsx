import { App, Button, Input } from "antd";
import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { type OperationRequest, runOperation } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { shortTaskId, taskPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import type { OperateForm } from "./request";
import type { Plan } from "./use-plan";

/** Above this the number of targets has to be typed. */
export const CONFIRM_ABOVE = 50;

type Props = { form: OperateForm; requests: OperationRequest[]; plan: Plan; isPlanning: boolean };

export function RunPlan({ form, requests, plan, isPlanning }: Props) {
  const { operate: text, terms } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const { message } = App.useApp();
  const [typed, setTyped] = useState("");
  const [isRunning, setRunning] = useState(false);
  const [made, setMade] = useState<string[]>([]);
  const count = plan.targets.length - plan.refused;
  const mustType = form.operation !== "status" && count > CONFIRM_ABOVE;
  const isConfirmed = !mustType || typed.replace(/\D/g, "") === String(count);
  const isHarsh = form.operation === "stop" || form.operation === "kill";

  const run = async () => {
    setRunning(true);
    const ids: string[] = [];
    try {
      for (const request of requests) {
        ids.push(await runOperation(request, crypto.randomUUID()));
        setMade([...ids]);
      }
      if (ids.length === 1 && ids[0]) await navigate(taskPath(ids[0]));
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    } finally {
      setRunning(false);
    }
  };

  if (made.length > 0 && requests.length > 1) {
    return (
      <div className="row wrap" role="status">
        <span>{text.created}:</span>
        {made.map((id) => (
          <Link key={id} to={taskPath(id)} className="mono">
            {shortTaskId(id)}
          </Link>
        ))}
      </div>
    );
  }
  return (
    <div className="row wrap">
      {mustType && (
        <Input
          style={{ width: 200 }}
          inputMode="numeric"
          aria-label={text.typeCount(number(count))}
          placeholder={text.typeCount(number(count))}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
        />
      )}
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

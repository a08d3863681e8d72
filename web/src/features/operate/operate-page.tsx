import { useMemo } from "react";
import { useSearchParams } from "react-router";
import { useMessages } from "@/settings/context";
import { Page } from "@/ui/page";
import { OperateFields } from "./operate-fields";
import { PlanView } from "./plan-view";
import { parseForm } from "./request";
import { usePlan } from "./use-plan";
import { useRequests } from "./use-requests";
import "./operate.css";

/** What to do, to what, where and how fast on the left; the plan and the button that runs it on the right. */
export function Component() {
  const { operate: text, tasks } = useMessages();
  const [params, setParams] = useSearchParams();
  const query = params.toString();
  const form = useMemo(() => parseForm(new URLSearchParams(query)), [query]);
  const { requests, isLookingUp, error, lookUpAgain } = useRequests(form);
  const planned = usePlan(requests);
  const planAgain = () => {
    // What a filter or a task names may be something else by now.
    void lookUpAgain();
    planned.planAgain();
  };
  const set = (part: Record<string, string | undefined>) => {
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const [name, value] of Object.entries(part)) {
          if (value) next.set(name, value);
          else next.delete(name);
        }
        return next;
      },
      { replace: true },
    );
  };
  return (
    <Page title={text.title} crumbs={[{ label: tasks.title, to: "/tasks" }]} isFilled>
      <div className="operate">
        <OperateFields form={form} set={set} />
        <PlanView
          form={form}
          requests={requests}
          {...planned}
          isPlanning={planned.isPlanning || isLookingUp}
          error={error ?? planned.error}
          planAgain={form.match === null && !form.retry ? planned.planAgain : planAgain}
        />
      </div>
    </Page>
  );
}

import { useMemo } from "react";
import { useSearchParams } from "react-router";
import { useMessages } from "@/settings/context";
import { Page } from "@/ui/page";
import { OperateFields } from "./operate-fields";
import { PlanView } from "./plan-view";
import { parseForm, requestOf } from "./request";
import { usePlan } from "./use-plan";
import "./operate.css";

/** What to do, to what, where and how fast on the left; the plan and the button that runs it on the right. */
export function Component() {
  const { operate: text, tasks } = useMessages();
  const [params, setParams] = useSearchParams();
  const query = params.toString();
  const form = useMemo(() => parseForm(new URLSearchParams(query)), [query]);
  const request = useMemo(() => requestOf(form), [form]);
  const planned = usePlan(request);
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
        <PlanView form={form} request={request} {...planned} />
      </div>
    </Page>
  );
}

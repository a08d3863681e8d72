import { useQueryClient } from "@tanstack/react-query";
import { App } from "antd";
import { useNavigate } from "react-router";
import { type PlannedUnregistration, type Process, planUnregistration, unregister } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { changeFate, takesEffect, useChangePlan } from "@/ui/change-plan";
import { ChangePlanView } from "@/ui/change-plan-view";
import type { Column } from "@/ui/data-table";
import { useNumbers } from "@/ui/format";
import { Phase } from "@/ui/phase";
import { PlanDialog } from "@/ui/plan-dialog";

type Props = { process: string; instances: Process[]; onClose: () => void };

const fateOf = (row: PlannedUnregistration) => changeFate(row);
const none: PlannedUnregistration[] = [];

/** Forgets a process on its hosts, once the plan has told what becomes of each. */
export function UnregisterDialog({ process, instances, onClose }: Props) {
  const { plans, process: text, operate, terms } = useMessages();
  const number = useNumbers();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { message } = App.useApp();
  const hosts = instances.map((instance) => instance.host);
  const query = useChangePlan(["unregister", process, hosts], async (signal) => {
    return (await planUnregistration(process, hosts, signal)).hosts;
  });
  const affected = (query.data ?? none).filter((row) => takesEffect(fateOf(row))).map((row) => row.host);

  const run = async () => {
    try {
      const { rows } = await unregister(process, affected);
      const failed = rows.filter((row) => row.code !== 0);
      const [first] = failed;
      if (first) {
        void message.warning(`${plans.failedOn(number(failed.length))}: ${first.host} ${terms.told(first)}`);
      } else void message.success(text.unregistered);
      await client.invalidateQueries({ queryKey: ["process"] });
      // What others see of it, or what was refused, is still there.
      if (failed.length === 0 && affected.length === hosts.length) await navigate("/processes");
      else onClose();
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    }
  };
  const now: Column<PlannedUnregistration> = {
    key: "now",
    title: operate.phaseNow,
    width: "120px",
    from: 420,
    render: (row) => (row.phase ? <Phase phase={row.phase} isOnline={row.online ?? true} /> : ""),
  };
  const runs = ({ phase }: PlannedUnregistration) => phase === "running" || phase === "starting";
  return (
    <PlanDialog
      title={plans.unregister.title(process)}
      yes={plans.unregister.yes}
      count={affected.length}
      isPlanned={query.data !== undefined && !query.isFetching && !query.error}
      isDanger
      onYes={run}
      onClose={onClose}
    >
      <p className="change-plan-hint">{plans.unregister.text}</p>
      <ChangePlanView
        query={query}
        fateOf={fateOf}
        columns={[now]}
        would={(row) => (runs(row) ? plans.unregister.runsOn : plans.unregister.stays)}
        exported={["host", "phase", "online", "refused"]}
      />
    </PlanDialog>
  );
}

import { useNavigate } from "react-router";
import { deletePool, type PlannedPool, type Pool, planPoolDeletion } from "@/api/server";
import { useMessages } from "@/settings/context";
import { takesEffect, useChangePlan } from "@/ui/change-plan";
import { PlanDialog } from "@/ui/plan-dialog";
import { useAction } from "@/ui/use-action";
import { PoolPlanView, poolFate } from "./pool-plan";

const none: PlannedPool[] = [];

type Props = { pool: Pool; title: string; onClose: () => void };

/** Deletes the pool of one host, once the plan has told whom it concerns. */
export function PoolDeleteDialog({ pool, title, onClose }: Props) {
  const { pools: text, plans } = useMessages();
  const { act } = useAction();
  const navigate = useNavigate();
  const { namespace, id, host } = pool;
  const query = useChangePlan(["delete-pool", namespace, id, host], async (signal) => {
    return (await planPoolDeletion(namespace, id, [host], signal)).pools;
  });
  const affected = (query.data ?? none).filter((row) => takesEffect(poolFate(row))).map((row) => row.host);
  const remove = async () => {
    const answer = await act(() => deletePool(namespace, id, affected), ["pools"]);
    if (answer) await navigate("/pools");
  };
  return (
    <PlanDialog
      title={text.deleteTitle(title)}
      yes={plans.pool.deleteYes}
      count={affected.length}
      isPlanned={query.data !== undefined && !query.isFetching && !query.error}
      isDanger
      onYes={remove}
      onClose={onClose}
    >
      <p className="change-plan-hint">{text.deleteText}</p>
      <PoolPlanView query={query} />
    </PlanDialog>
  );
}

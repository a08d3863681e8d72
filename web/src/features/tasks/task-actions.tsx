import { useQueryClient } from "@tanstack/react-query";
import { App, Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import type { OperationClass } from "@/api/access";
import type { Session } from "@/api/session";
import { cancelTask, pauseTask, resumeTask, type Task, taskQuery } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Guarded, hasRight, useSession } from "@/ui/rights";
import { CONFIRM_ABOVE } from "@/ui/typed-count";
import { linkTo } from "@/ui/url-state";
import { useConfirm } from "@/ui/use-confirm";

/**
 * As the server decides it: who made a task steers it, or whom an app made it for, and who may operate everything. An
 * app that calls for nobody has its own code as the user. Who sees everything may also retry what is over, as a task of
 * their own.
 */
export function maySteer(session: Session, { user, app, finished_at }: Task): boolean {
  const isOwn = user !== "" && user !== app && user === session.user;
  const hasEverywhere = (need: OperationClass) => hasRight(session, need, {});
  return isOwn || hasEverywhere("operate") || (finished_at != null && hasEverywhere("read"));
}

/** Pause, resume, cancel and retry, whichever fits the task now; a retry leads to its plan. */
export function TaskActions({ task }: { task: Task }) {
  const { tasks: text } = useMessages();
  const number = useNumbers();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { message } = App.useApp();
  const confirm = useConfirm();
  const session = useSession();
  const [busy, setBusy] = useState("");
  const id = task.task_id;

  const act = async (name: string, call: () => Promise<Task>) => {
    setBusy(name);
    try {
      client.setQueryData(taskQuery(id).queryKey, await call());
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy("");
    }
  };
  const reason = maySteer(session, task) ? undefined : text.notYours(task.user || task.app);
  const isPaused = task.rollout?.state === "paused";
  const canPause = task.rollout?.state === "running" && task.rollout.released < task.total;
  const waiting = task.rollout ? task.total - task.rollout.released : 0;
  const resume = () => {
    const go = () => void act("resume", () => resumeTask(id));
    if (waiting <= CONFIRM_ABOVE) return go();
    const yes = text.resumeRest(number(waiting));
    confirm({ title: text.resumeTitle, text: text.resumeText, yes, count: waiting, isHarmless: true }, go);
  };

  return (
    <Guarded need="operate" reason={reason}>
      {(isAllowed) => (
        <span className="row">
          {isPaused && (
            <Button type="primary" disabled={!isAllowed} loading={busy === "resume"} onClick={resume}>
              {text.resumeRest(number(waiting))}
            </Button>
          )}
          {canPause && (
            <Button
              disabled={!isAllowed}
              loading={busy === "pause"}
              title={text.pauseHelp}
              onClick={() => void act("pause", () => pauseTask(id))}
            >
              {text.pause}
            </Button>
          )}
          {!task.finished_at && !task.cancelled_at && (
            <Button
              danger
              disabled={!isAllowed}
              loading={busy === "cancel"}
              onClick={() =>
                confirm(
                  {
                    title: text.cancelTitle,
                    text: text.cancelText(number(task.pending)),
                    yes: text.cancelPending(number(task.pending)),
                    count: task.pending,
                  },
                  () => void act("cancel", () => cancelTask(id)),
                )
              }
            >
              {text.cancel}
            </Button>
          )}
          {task.finished_at && task.failed > 0 && (
            <Button disabled={!isAllowed} onClick={() => void navigate(linkTo("/operate", { retry: id }))}>
              {text.retry(number(task.failed))}…
            </Button>
          )}
        </span>
      )}
    </Guarded>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { App, Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import type { OperationClass } from "@/api/access";
import type { Session } from "@/api/session";
import { cancelTask, pauseTask, resumeTask, retryTask, type Task, taskQuery } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { taskPath } from "@/ui/paths";
import { Guarded, hasRight, useSession } from "@/ui/rights";
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

/** Pause, resume, cancel and retry, whichever fits the task now. */
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
      const next = await call();
      if (next.task_id !== id) await navigate(taskPath(next.task_id));
      else client.setQueryData(taskQuery(id).queryKey, next);
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

  return (
    <Guarded need="operate" reason={reason}>
      {(isAllowed) => (
        <span className="row">
          {isPaused && (
            <Button
              type="primary"
              disabled={!isAllowed}
              loading={busy === "resume"}
              onClick={() => void act("resume", () => resumeTask(id))}
            >
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
                    yes: text.cancel,
                  },
                  () => void act("cancel", () => cancelTask(id)),
                )
              }
            >
              {text.cancel}
            </Button>
          )}
          {task.finished_at && task.failed > 0 && (
            <Button
              disabled={!isAllowed}
              loading={busy === "retry"}
              onClick={() =>
                confirm(
                  {
                    title: text.retryTitle(number(task.failed)),
                    text: text.retryText,
                    yes: text.retry(number(task.failed)),
                    count: task.failed,
                    isHarmless: true,
                  },
                  () => void act("retry", () => retryTask(id)),
                )
              }
            >
              {text.retry(number(task.failed))}
            </Button>
          )}
        </span>
      )}
    </Guarded>
  );
}

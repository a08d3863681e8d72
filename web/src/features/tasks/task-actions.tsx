import { useQueryClient } from "@tanstack/react-query";
import { App, Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import { cancelTask, pauseTask, resumeTask, retryTask, type Task, taskQuery } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { taskPath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";

/** Pause, resume, cancel and retry, whichever fits the task now. */
export function TaskActions({ task }: { task: Task }) {
  const { tasks: text, common } = useMessages();
  const number = useNumbers();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { modal, message } = App.useApp();
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
  const ask = (title: string, content: string, okText: string, danger: boolean, run: () => void) => {
    modal.confirm({
      title,
      content,
      okText,
      cancelText: common.cancel,
      okButtonProps: { danger },
      onOk: run,
    });
  };
  const isPaused = task.rollout?.state === "paused";
  const canPause = task.rollout?.state === "running" && task.rollout.released < task.total;
  const waiting = task.rollout ? task.total - task.rollout.released : 0;

  return (
    <Guarded need="operate">
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
                ask(
                  text.cancelTitle,
                  text.cancelText(number(task.pending)),
                  text.cancel,
                  true,
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
                ask(
                  text.retryTitle(number(task.failed)),
                  text.retryText,
                  text.retry(number(task.failed)),
                  false,
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

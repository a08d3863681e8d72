import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { App } from "antd";
import { useCallback } from "react";
import { useMessages } from "@/settings/context";

type Question = { title: string; text: string; yes: string };

/** Does something, asks for the lists that it changed anew, and tells what failed. */
export function useAction() {
  const client = useQueryClient();
  const { common } = useMessages();
  const { message, modal } = App.useApp();
  const act = useCallback(
    async <Result>(call: () => Promise<Result>, changed: QueryKey): Promise<Result | undefined> => {
      try {
        const result = await call();
        await client.invalidateQueries({ queryKey: changed });
        return result;
      } catch (error) {
        void message.error(error instanceof Error ? error.message : String(error));
        return undefined;
      }
    },
    [client, message],
  );
  /** The same, once the viewer has confirmed. */
  const ask = useCallback(
    (question: Question, call: () => Promise<unknown>, changed: QueryKey) =>
      modal.confirm({
        title: question.title,
        content: question.text,
        okText: question.yes,
        cancelText: common.cancel,
        okButtonProps: { danger: true },
        onOk: () => act(call, changed),
      }),
    [act, modal, common],
  );
  return { act, ask };
}

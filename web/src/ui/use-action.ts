import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { App } from "antd";
import { useCallback } from "react";
import { type Question, useConfirm } from "./use-confirm";

/** Does something, asks for the lists that it changed anew, and tells what failed. */
export function useAction() {
  const client = useQueryClient();
  const { message } = App.useApp();
  const confirm = useConfirm();
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
      confirm(question, () => act(call, changed)),
    [act, confirm],
  );
  return { act, ask };
}

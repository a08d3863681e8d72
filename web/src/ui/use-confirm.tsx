import { App } from "antd";
import { useCallback } from "react";
import { useMessages } from "@/settings/context";
import { CONFIRM_ABOVE, TypedCount } from "./typed-count";

export type Question = {
  title: string;
  text: string;
  yes: string;
  /** How many it concerns; many are typed. */
  count?: number;
  isHarmless?: boolean;
};

/** Asks before something is done. */
export function useConfirm() {
  const { common } = useMessages();
  const { modal } = App.useApp();
  return useCallback(
    ({ title, text, yes, count = 1, isHarmless }: Question, onYes: () => unknown) => {
      const button = (disabled: boolean) => ({ danger: !isHarmless, disabled });
      const mustType = count > CONFIRM_ABOVE;
      const dialog = modal.confirm({
        title,
        content: mustType ? (
          <>
            <p>{text}</p>
            <TypedCount
              count={count}
              onConfirmed={(isConfirmed) => dialog.update({ okButtonProps: button(!isConfirmed) })}
            />
          </>
        ) : (
          text
        ),
        okText: yes,
        cancelText: common.cancel,
        okButtonProps: button(mustType),
        onOk: onYes,
      });
    },
    [modal, common],
  );
}

import { Button, Modal } from "antd";
import { type ReactNode, useState } from "react";
import { useMessages } from "@/settings/context";
import { useNumbers } from "./format";
import { useTypedCount } from "./typed-count";
import "./change-plan.css";

type Props = {
  title: string;
  /** What the button says, with how many hosts it concerns. */
  yes: (count: string) => string;
  /** On how many hosts something would be done; 0 while that is not known. */
  count: number;
  /** What is shown is the plan of what the button would do. */
  isPlanned: boolean;
  isDanger?: boolean;
  /** The dialog takes no second click until it answers. */
  onYes: () => Promise<unknown>;
  onClose: () => void;
  children: ReactNode;
};

/** A change with its plan above the button that makes it; above fifty hosts their number is typed. */
export function PlanDialog(props: Props) {
  const { title, yes, count, isPlanned, isDanger, onYes, onClose, children } = props;
  const { common, plans } = useMessages();
  const number = useNumbers();
  const [isRunning, setRunning] = useState(false);
  const { isConfirmed, field } = useTypedCount(count);
  const run = () => {
    setRunning(true);
    void onYes().finally(() => setRunning(false));
  };
  return (
    <Modal
      open
      title={title}
      width={760}
      onCancel={onClose}
      footer={
        <div className="row wrap plan-dialog-foot">
          {field}
          <span className="grow" />
          <Button onClick={onClose}>{common.cancel}</Button>
          <Button
            type="primary"
            danger={isDanger}
            disabled={!isPlanned || !isConfirmed || count === 0}
            loading={isRunning}
            onClick={run}
          >
            {isPlanned && count === 0 ? plans.nothing : yes(isPlanned ? number(count) : "…")}
          </Button>
        </div>
      }
    >
      <div className="stack plan-dialog">{children}</div>
    </Modal>
  );
}

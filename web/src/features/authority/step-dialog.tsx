import { useQueryClient } from "@tanstack/react-query";
import { Alert, Button, Checkbox, Modal } from "antd";
import { useState } from "react";
import { type Authority, authorityQuery, type RotationStep, rotateAuthority } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { useTypedCount } from "@/ui/typed-count";
import { BehindTable } from "./behind-table";

type Props = { step: RotationStep; authority: Authority; onClose: () => void };

/** One step of a rotation, with whom it would cut off above the button that takes it. */
export function StepDialog({ step, authority, onClose }: Props) {
  const { authority: text, common } = useMessages();
  const number = useNumbers();
  const client = useQueryClient();
  const [isForced, setForced] = useState(false);
  const [isRunning, setRunning] = useState(false);
  const [refused, setRefused] = useState<string | null>(null);
  const cutOff = step === "switch" || step === "finish" ? authority.behind_total : 0;
  const { isConfirmed, field } = useTypedCount(isForced ? cutOff : 0);
  const mustForce = cutOff > 0 || (refused !== null && step === "abort");

  const run = async () => {
    setRunning(true);
    try {
      const after = await rotateAuthority(step, isForced);
      client.setQueryData(authorityQuery.queryKey, after);
      onClose();
    } catch (error) {
      // Whom an abort would cut off is known to the server alone; others may have changed meanwhile.
      setRefused(error instanceof Error ? error.message : String(error));
      await client.invalidateQueries({ queryKey: authorityQuery.queryKey });
    } finally {
      setRunning(false);
    }
  };
  const explained = step === "abort" ? text.abortText[abortedPhase(authority)] : text.stepText[step];
  return (
    <Modal
      open
      title={text.act[step].replace("…", "")}
      width={640}
      onCancel={onClose}
      footer={
        <div className="row wrap plan-dialog-foot">
          {field}
          <span className="grow" />
          <Button onClick={onClose}>{common.cancel}</Button>
          <Button
            type="primary"
            danger={step !== "prepare"}
            loading={isRunning}
            disabled={(mustForce && !isForced) || !isConfirmed}
            onClick={() => void run()}
          >
            {text.confirm[step]}
          </Button>
        </div>
      }
    >
      <div className="stack">
        <p className="flush">{explained}</p>
        {refused && <Alert type="error" showIcon title={refused} />}
        {cutOff > 0 && <BehindTable rows={authority.behind} />}
        {mustForce ? (
          <Checkbox checked={isForced} onChange={(event) => setForced(event.target.checked)}>
            {cutOff > 0 ? text.force(number(cutOff)) : text.forceAbort}
          </Checkbox>
        ) : (
          step !== "abort" && <p className="tone-running flush">{text.behindNone}</p>
        )}
        {step === "finish" && authority.open_tokens > 0 && (
          <p className="tone-warning flush">{text.tokensEnd(number(authority.open_tokens))}</p>
        )}
        <p className="muted flush">{text.backup}</p>
      </div>
    </Modal>
  );
}

const abortedPhase = ({ phase }: Authority) => (phase === "switched" ? "switched" : "prepared");

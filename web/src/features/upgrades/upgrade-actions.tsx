import { Button } from "antd";
import { cancelUpgrade, isUnderWay, pauseUpgrade, resumeUpgrade, type Upgrade } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Guarded } from "@/ui/rights";
import { useAction } from "@/ui/use-action";

const UPGRADES = ["upgrades"];

/** Pause, resume and cancel, whichever fits the upgrade now. */
export function UpgradeActions({ upgrade, waiting }: { upgrade: Upgrade; waiting: number }) {
  const { upgrades: text } = useMessages();
  const number = useNumbers();
  const { act, ask } = useAction();
  if (!isUnderWay(upgrade)) return null;
  const resume = () =>
    ask(
      {
        title: text.resumeTitle,
        text: text.resumeText,
        yes: text.resumeRest(number(waiting)),
        count: waiting,
        isHarmless: true,
      },
      () => resumeUpgrade(upgrade.id),
      UPGRADES,
    );
  const cancel = () =>
    ask(
      {
        title: text.cancelTitle,
        text: text.cancelText(number(waiting)),
        yes: waiting > 0 ? text.cancelDo(number(waiting)) : text.cancel,
        count: waiting,
      },
      () => cancelUpgrade(upgrade.id),
      UPGRADES,
    );
  return (
    <Guarded need="admin">
      {(isAllowed) => (
        <span className="row">
          {upgrade.state === "paused" ? (
            <Button type="primary" disabled={!isAllowed} onClick={resume}>
              {text.resume}
            </Button>
          ) : (
            <Button
              disabled={!isAllowed}
              title={text.pauseHelp}
              onClick={() => void act(() => pauseUpgrade(upgrade.id), UPGRADES)}
            >
              {text.pause}
            </Button>
          )}
          <Button danger disabled={!isAllowed} onClick={cancel}>
            {text.cancel}
          </Button>
        </span>
      )}
    </Guarded>
  );
}

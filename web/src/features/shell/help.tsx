import { Modal } from "antd";
import { useMessages } from "@/settings/context";
import "./help.css";

export default function Help({ onClose }: { onClose: () => void }) {
  const { shell } = useMessages();
  const { shortcut } = shell;
  const keys: [string[], string][] = [
    [["/"], shortcut.search],
    [["Ctrl", "K"], shortcut.palette],
    [["g", "o"], shortcut.goOverview],
    [["g", "p"], shortcut.goProcesses],
    [["g", "h"], shortcut.goHosts],
    [["g", "t"], shortcut.goTasks],
    [["g", "e"], shortcut.goEvents],
    [["g", "l"], shortcut.goPools],
    [["g", "a"], shortcut.goAudit],
    [["j"], shortcut.nextRow],
    [["k"], shortcut.previousRow],
    [["x"], shortcut.selectRow],
    [["Enter"], shortcut.openRow],
    [["?"], shortcut.help],
    [["Esc"], shortcut.close],
  ];
  return (
    <Modal open title={shell.shortcuts} footer={null} onCancel={onClose}>
      <dl className="shortcuts">
        {keys.map(([names, text]) => (
          <div key={text}>
            <dt>
              {names.map((name) => (
                <kbd key={name}>{name}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </Modal>
  );
}

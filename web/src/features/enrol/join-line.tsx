import { Alert } from "antd";
import { useMessages } from "@/settings/context";
import { CopyButton } from "@/ui/copy";
import type { Made } from "./enrol-page";

/** The line to paste, exactly as a shell takes it. */
export function joinLine(address: string, token: string, cloud: number | null): string {
  const quoted = /^[\w.:[\]-]+$/.test(address) ? address : `'${address.replaceAll("'", "'\\''")}'`;
  const area = cloud ? ` --cloud-id ${cloud}` : "";
  return `proctor-agent --server ${quoted} --token ${token}${area} --state-dir /var/lib/proctor-agent`;
}

export function JoinLine({ made }: { made: Made | null }) {
  const { enrol: text } = useMessages();
  const line = made
    ? joinLine(made.fields.address, made.token.token, made.fields.cloud)
    : joinLine("SERVER:9077", "TOKEN", null);
  return (
    <div className="panel-body stack">
      <div className={`join-line${made ? "" : " is-waiting"}`}>
        <pre>{line}</pre>
        {made && <CopyButton text={line} label={text.step.paste} />}
      </div>
      <p className="muted enrol-note">{text.pasteHelp}</p>
      {made && <Alert type="warning" showIcon title={text.secretOnce} />}
    </div>
  );
}

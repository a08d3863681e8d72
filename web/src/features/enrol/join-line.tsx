import { useQuery } from "@tanstack/react-query";
import { Alert, Segmented } from "antd";
import type { Schemas } from "@/api/client";
import { downloadsQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { CommandLine, quoted } from "@/ui/command-line";
import { useUrlValue } from "@/ui/url-state";
import type { Made } from "./enrol-page";

type Download = Schemas["DownloadView"];
type Token = { address: string; token: string; cloud: number | null };

const PROGRAM = "proctor-agent-";

const areaOf = (cloud: number | null) => (cloud ? ` --cloud-id ${cloud}` : "");

/** Where the program is on the host already. */
export function installLine({ address, token, cloud }: Token): string {
  return `PROCTOR_TOKEN=${quoted(token)} proctor-agent install --server ${quoted(address)}${areaOf(cloud)}`;
}

/** As `proctor join-command` writes it: the digest pins the program, and no argument shows the token. */
export function downloadLine({ address, token, cloud }: Token, base: string, file: Download): string {
  const curl = base.startsWith("https://") ? "curl -fsSLk --retry 20" : "curl -fsSL --retry 20";
  return (
    `d=$(mktemp -d) && ${curl} -o "$d/proctor-agent" ${quoted(`${base}/download/${file.name}`)} && ` +
    `echo '${file.sha256}  '"$d/proctor-agent" | sha256sum -c --quiet - && chmod 755 "$d/proctor-agent" && ` +
    `PROCTOR_TOKEN=${quoted(token)} "$d/proctor-agent" install --server ${quoted(address)}${areaOf(cloud)}; ` +
    `s=$?; rm -rf "$d"; (exit $s)`
  );
}

/** The line to paste, exactly as a shell takes it. */
export function JoinLine({ made }: { made: Made | null }) {
  const { enrol: text } = useMessages();
  const files = (useQuery(downloadsQuery).data?.files ?? []).filter((file) => file.name.startsWith(PROGRAM));
  const [wanted, setWanted] = useUrlValue("program", files[0]?.name ?? "installed");
  const file = files.find((each) => each.name === wanted);
  const token = made
    ? { address: made.fields.address, token: made.token.token, cloud: made.fields.cloud }
    : { address: "SERVER:PORT", token: "TOKEN", cloud: null };
  const line = file ? downloadLine(token, location.origin, file) : installLine(token);
  return (
    <div className="panel-body stack">
      {files.length > 0 && (
        <Segmented
          value={file?.name ?? "installed"}
          onChange={setWanted}
          options={[
            ...files.map(({ name }) => ({ value: name, label: text.download(name.slice(PROGRAM.length)) })),
            { value: "installed", label: text.installed },
          ]}
        />
      )}
      <CommandLine line={line} label={text.step.paste} isSample={made === null} />
      <p className="muted enrol-note">{file ? text.downloadHelp : text.pasteHelp}</p>
      {made && <Alert type="warning" showIcon title={text.secretOnce} />}
    </div>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { Process } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { ExportButton } from "@/ui/export";
import { OutcomeBadge } from "@/ui/outcome";
import { hostPath, taskPath } from "@/ui/paths";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { operationsQuery } from "./operations";
import type { TabProps } from "./process-page";

const SHOWN = 50;

/** What the commands of the latest operations printed. */
export default function Output({ process, instances }: TabProps) {
  const { process: text, terms } = useMessages();
  const query = useQuery(operationsQuery(process));
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.error && !query.data) return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  const done = query.data ?? [];
  const told = done.filter((target) => target.output || target.code !== 0).slice(0, SHOWN);
  const shown = told.length > 0 ? told : done.slice(0, 10);
  return (
    <section className="stack process-output" aria-label={text.outputOf}>
      <div className="row">
        <LogPath instances={instances} />
        <span className="grow" />
        <ExportButton
          name="output"
          rows={done}
          columns={["task_id", "at_ms", "host", "operation", "user", "code", "message", "output"]}
        />
      </div>
      {shown.length === 0 && <Empty title={text.outputEmpty} />}
      {shown.map((target) => (
        <article key={`${target.task_id} ${target.index}`} className="panel">
          <div className="panel-head">
            <OutcomeBadge target={target} />
            <span>{terms.operation[(target.operation ?? "status") as keyof typeof terms.operation]}</span>
            <Link to={hostPath(target.host)} className="mono">
              {target.host}
            </Link>
            <span className="grow" />
            <span className="muted">{target.user}</span>
            <Link to={taskPath(target.task_id)}>
              <TimeMs at={target.at_ms} />
            </Link>
          </div>
          <div className="panel-body">
            {target.code !== 0 && target.message.trim() !== target.output?.trim() && (
              <p className="process-message">{terms.told(target)}</p>
            )}
            {target.output ? <pre>{target.output}</pre> : <span className="muted">{text.noOutput}</span>}
          </div>
        </article>
      ))}
    </section>
  );
}

/** Where the process itself writes; the file stays on its hosts. */
function LogPath({ instances }: { instances: Process[] }) {
  const { process: text } = useMessages();
  const paths = [...new Set(instances.map((instance) => instance.spec?.identity.log_path).filter(Boolean))];
  if (paths.length === 0) return null;
  return (
    <p className="row wrap process-log">
      <span className="muted">{text.logAt}</span>
      {paths.slice(0, 3).map((path) => (
        <CopyText key={path} text={path ?? ""} />
      ))}
      <Link to="?tab=log">{text.logOpen}</Link>
    </p>
  );
}

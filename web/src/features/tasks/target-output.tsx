import { useQuery } from "@tanstack/react-query";
import { Drawer } from "antd";
import { Link } from "react-router";
import { targetQuery } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { OutcomeBadge } from "@/ui/outcome";
import { hostPath, processPath } from "@/ui/paths";
import { Failure, Skeleton } from "@/ui/states";

type Props = { id: string; index: number | null; onClose: () => void };

/** What came of one target, with what its command printed. */
export function TargetOutput({ id, index, onClose }: Props) {
  const { tasks: text, terms } = useMessages();
  const { data: target, error, refetch } = useQuery(targetQuery(id, index));
  return (
    <Drawer
      open={index !== null}
      onClose={onClose}
      size="large"
      title={target ? text.outputOf(target.process, target.host) : ""}
    >
      {error && !target && <Failure error={error} onRetry={() => void refetch()} />}
      {index !== null && !target && !error && <Skeleton lines={6} />}
      {target && (
        <div className="stack">
          <div className="row wrap">
            <OutcomeBadge target={target} />
            <span className="muted">
              {target.code} {target.name}
            </span>
            <span className="grow" />
            <span className="target-links">
              <Link to={processPath(target.process)}>{target.process}</Link>
              <Link to={hostPath(target.host)} className="mono">
                {target.host}
              </Link>
            </span>
          </div>
          {target.message && target.message.trim() !== target.output?.trim() && (
            <p className="target-message">{terms.told(target)}</p>
          )}
          {target.output ? (
            <pre className="output">{target.output}</pre>
          ) : (
            <p className="muted">{text.noOutput}</p>
          )}
        </div>
      )}
    </Drawer>
  );
}

import { Drawer } from "antd";
import { Link } from "react-router";
import type { Target } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { OutcomeBadge } from "@/ui/outcome";
import { hostPath, processPath } from "@/ui/paths";

/** What came of one target, with what its command printed. */
export function TargetOutput({ target, onClose }: { target: Target | null; onClose: () => void }) {
  const { tasks: text } = useMessages();
  return (
    <Drawer
      open={target !== null}
      onClose={onClose}
      size="large"
      title={target ? text.outputOf(target.process, target.host) : ""}
    >
      {target && (
        <div className="stack">
          <div className="row">
            <OutcomeBadge target={target} />
            <span className="muted">
              {target.code} {target.name}
            </span>
            <span className="grow" />
            <Link to={processPath(target.process)}>{target.process}</Link>
            <Link to={hostPath(target.host)} className="mono">
              {target.host}
            </Link>
          </div>
          {target.message && <p className="target-message">{target.message}</p>}
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

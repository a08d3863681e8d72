import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { runningTasksQuery } from "@/api/tasks";
import { TaskState, useTaskName } from "@/features/tasks/task-state";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Panel } from "@/ui/page";
import { hostPath, taskPath } from "@/ui/paths";
import { Progress } from "@/ui/progress";
import { Time, useNow } from "@/ui/time";
import { linkTo } from "@/ui/url-state";
import type { Overview } from "./use-overview";

const SOON_SECS = 14 * 86_400;

/** Tasks under way, versions of agents, certificates that end soon. */
export function Sidebar({ data }: { data: Overview }) {
  return (
    <div className="stack">
      <Tasks />
      <Versions data={data} />
      <Certificates data={data} />
    </div>
  );
}

function Tasks() {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const nameOf = useTaskName();
  const tasks = useQuery(runningTasksQuery).data ?? [];
  return (
    <Panel title={text.tasks}>
      <div className="panel-body">
        {tasks.length === 0 && <span className="muted">{text.noTasks}</span>}
        {tasks.map((task) => (
          <Link key={task.task_id} to={taskPath(task.task_id)} className="overview-task">
            <span className="row">
              <span className="grow truncate">{nameOf(task)}</span>
              <TaskState task={task} />
              <span className="muted">
                {number(task.total - task.pending)} / {number(task.total)}
              </span>
            </span>
            <Progress task={task} />
          </Link>
        ))}
      </div>
    </Panel>
  );
}

function Versions({ data }: { data: Overview }) {
  const { overview: text, common } = useMessages();
  const number = useNumbers();
  const counts = new Map<string, number>();
  for (const host of data.hosts) {
    const version = host.facts?.agent_version ?? common.unknown;
    counts.set(version, (counts.get(version) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return (
    <Panel title={text.versions}>
      <ul className="panel-body overview-list">
        {sorted.map(([version, count]) => (
          <li key={version}>
            <Link to={linkTo("/hosts", { version })} className="mono">
              {version}
            </Link>
            <span>{number(count)}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Certificates({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const now = useNow() / 1000;
  const ending = data.hosts
    .filter((host) => host.certificate_expires_at && host.certificate_expires_at - now < SOON_SECS)
    .sort((a, b) => (a.certificate_expires_at ?? 0) - (b.certificate_expires_at ?? 0))
    .slice(0, 8);
  return (
    <Panel title={text.certificates}>
      <ul className="panel-body overview-list">
        {ending.length === 0 && <li className="muted">{text.noCertificates}</li>}
        {ending.map((host) => (
          <li key={host.agent}>
            <Link to={hostPath(host.host)} className="mono">
              {host.host}
            </Link>
            <Time at={host.certificate_expires_at} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { type HostStatus, hostStates, NEVER_CONNECTED } from "@/api/hosts";
import type { Overview } from "@/api/overview";
import { phases } from "@/api/processes";
import { runningTasksQuery } from "@/api/tasks";
import { TaskLine } from "@/features/tasks/task-line";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Panel } from "@/ui/page";
import { hostPath } from "@/ui/paths";
import { type Tone, ToneIcon, toneOf } from "@/ui/phase";
import { Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { linkTo } from "@/ui/url-state";
import { processesPath } from "./paths";

/** Sums, tasks under way, versions of agents, certificates that end soon. */
export function Sidebar({ data }: { data: Overview }) {
  return (
    <div className="stack">
      <Processes data={data} />
      <Hosts data={data} />
      <Tasks data={data} />
      <Versions data={data} />
      <Certificates data={data} />
    </div>
  );
}

type Sum = { key: string; tone: Tone; label: string; count: number; to: string; isHollow?: boolean };

/** A bar of the parts, and a line for each with its number. */
function Sums({ sums }: { sums: Sum[] }) {
  const number = useNumbers();
  const present = sums.filter((sum) => sum.count > 0);
  return (
    <div className="panel-body">
      <span className="phase-bar" aria-hidden="true">
        {present.map((sum) => (
          <span key={sum.key} className={`fill-${sum.tone}`} style={{ flexGrow: sum.count }} />
        ))}
      </span>
      <ul className="overview-list">
        {present.map((sum) => (
          <li key={sum.key}>
            <Link to={sum.to} className={`phase tone-${sum.tone}`}>
              <ToneIcon tone={sum.tone} hollow={sum.isHollow} />
              {sum.label}
            </Link>
            <span>{number(sum.count)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Processes({ data }: { data: Overview }) {
  const { overview: text, terms } = useMessages();
  const number = useNumbers();
  const sums = phases.map((phase) => ({
    key: phase,
    tone: toneOf(phase),
    label: terms.phase[phase],
    count: data.processes.phases[phase],
    to: processesPath(data, { phase }),
    isHollow: phase === "unknown",
  }));
  const cordoned: Sum = {
    key: "cordoned",
    tone: "idle",
    label: text.onCordoned,
    count: data.processes.cordoned ?? 0,
    to: "/processes?cordoned=true",
    isHollow: true,
  };
  return (
    <Panel title={text.processes} extra={<span className="muted">{number(data.processes.total)}</span>}>
      <Sums sums={[...sums, cordoned]} />
    </Panel>
  );
}

const hostTones: Record<HostStatus, Tone> = {
  online: "running",
  away: "warning",
  unreachable: "warning",
  cordoned: "idle",
  awaits_approval: "changing",
  revoked: "idle",
};

function Hosts({ data }: { data: Overview }) {
  const { overview: text, hosts } = useMessages();
  const number = useNumbers();
  const sums = hostStates.map((state) => ({
    key: state,
    tone: hostTones[state],
    label: hosts.state[state],
    count: data.hosts[state] ?? 0,
    to: `/hosts?state=${state}`,
    isHollow: state === "revoked",
  }));
  return (
    <Panel
      title={hosts.title}
      extra={<span className="muted">{text.hostCount(number(data.hosts.total))}</span>}
    >
      <Sums sums={sums} />
      <Clouds data={data} />
    </Panel>
  );
}

/** What is special in each cloud area; nothing where there is only one. */
function Clouds({ data }: { data: Overview }) {
  const { overview: text, hosts } = useMessages();
  const number = useNumbers();
  const clouds = data.clouds ?? [];
  if (clouds.length < 2) return null;
  const more = (data.clouds_total ?? 0) - clouds.length;
  return (
    <ul className="panel-body overview-list" aria-label={text.clouds}>
      {clouds.map((cloud) => {
        const states = hostStates.filter((state) => state !== "online" && (cloud[state] ?? 0) > 0);
        return (
          <li key={cloud.cloud}>
            <Link to={`/hosts?cloud=${cloud.cloud}`}>{text.cloud(cloud.cloud)}</Link>
            <span className="grow overview-states">
              {states.map((state) => (
                <Link
                  key={state}
                  to={`/hosts?cloud=${cloud.cloud}&state=${state}`}
                  className={`tone-${hostTones[state]}`}
                >
                  {hosts.state[state]} {number(cloud[state] ?? 0)}
                </Link>
              ))}
            </span>
            <span>{number(cloud.total)}</span>
          </li>
        );
      })}
      {more > 0 && <li className="muted">{text.more(number(more))}</li>}
    </ul>
  );
}

function Tasks({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const query = useQuery(runningTasksQuery);
  const tasks = query.data ?? [];
  const paused = data.tasks.paused;
  return (
    <Panel
      title={text.tasks}
      extra={
        paused > 0 ? <span className="tone-warning">{text.pausedTasks(number(paused))}</span> : undefined
      }
    >
      <div className="panel-body">
        {query.data?.length === 0 && <span className="muted">{text.noTasks}</span>}
        {query.isPending && <Skeleton lines={2} />}
        {query.error && !query.data && <Failure error={query.error} onRetry={() => void query.refetch()} />}
        {tasks.slice(0, 6).map((task) => (
          <TaskLine key={task.task_id} task={task} />
        ))}
      </div>
    </Panel>
  );
}

function Versions({ data }: { data: Overview }) {
  const { overview: text, common } = useMessages();
  const number = useNumbers();
  return (
    <Panel title={text.versions}>
      <ul className="panel-body overview-list">
        {data.agent_versions.map(({ version, hosts }) => (
          <li key={version}>
            {version ? (
              <Link to={linkTo("/hosts", { version })} className="mono truncate" title={version}>
                {version}
              </Link>
            ) : (
              <Link to={linkTo("/hosts", { version: NEVER_CONNECTED })} className="muted">
                {common.unknown}
              </Link>
            )}
            <span>{number(hosts)}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Certificates({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  const more = data.certificates_ending_total - data.certificates_ending.length;
  return (
    <Panel title={text.certificates}>
      <ul className="panel-body overview-list">
        {data.certificates_ending.length === 0 && <li className="muted">{text.noCertificates}</li>}
        {data.certificates_ending.map((certificate) => (
          <li key={certificate.host}>
            <Link to={hostPath(certificate.host)} className="mono">
              {certificate.host}
            </Link>
            <Time at={certificate.expires_at} />
          </li>
        ))}
        {more > 0 && <li className="muted">{text.more(number(more))}</li>}
      </ul>
    </Panel>
  );
}

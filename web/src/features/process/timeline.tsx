import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { eventsQuery } from "@/api/events";
import { splitProcess } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { EventKindLabel } from "@/ui/event-kind";
import { useNumbers } from "@/ui/format";
import { hostPath, taskPath } from "@/ui/paths";
import { Badge } from "@/ui/phase";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { type Done, operationsQuery } from "./operations";
import type { TabProps } from "./process-page";

type Entry = {
  key: string;
  atMs: number;
  what: React.ReactNode;
  text: string;
  host: React.ReactNode;
  output: string;
};

/** Events and operations on one axis, newest first. */
export default function Timeline({ process }: TabProps) {
  const { process: text, terms } = useMessages();
  const number = useNumbers();
  const events = useQuery({
    ...eventsQuery({ ...splitProcess(process), limit: 300 }),
    refetchInterval: 10_000,
  });
  const operations = useQuery(operationsQuery(process));
  if (events.isPending) return <Skeleton lines={10} />;
  if (events.error && !events.data)
    return <Failure error={events.error} onRetry={() => void events.refetch()} />;

  const entries: Entry[] = (events.data ?? []).map((event) => ({
    key: `event ${event.id}`,
    atMs: event.at_ms,
    what: <EventKindLabel event={event} />,
    text: event.content,
    host: <Link to={hostPath(event.host)}>{event.host}</Link>,
    output: "",
  }));
  for (const [id, done] of byTask(operations.data ?? [])) {
    const first = done[0];
    if (!first) continue;
    const failed = done.filter((each) => each.target.code !== 0 && each.target.code !== 115).length;
    const operation = (first.target.operation ?? "status") as keyof typeof terms.operation;
    entries.push({
      key: id,
      atMs: first.task.created_at * 1000,
      what: (
        <Badge tone={failed > 0 ? "failed" : "changing"}>{terms.operation[operation] ?? operation}</Badge>
      ),
      text: text.operationBy(terms.operation[operation] ?? operation, first.task.user),
      host: (
        <Link to={taskPath(id)}>
          {done.length === 1 ? first.target.host : text.hosts(number(done.length))}
        </Link>
      ),
      output: done.find((each) => each.target.output)?.target.output ?? "",
    });
  }
  entries.sort((a, b) => b.atMs - a.atMs);
  if (entries.length === 0) return <Empty title={text.timelineEmpty} />;
  return (
    <section className="panel timeline" aria-label={text.timelineOf}>
      <ol>
        {entries.map((entry) => (
          <li key={entry.key}>
            <span className="timeline-time">
              <TimeMs at={entry.atMs} form="clock" />
              <span className="muted">
                <TimeMs at={entry.atMs} />
              </span>
            </span>
            <span className="timeline-what">{entry.what}</span>
            <span className="timeline-host mono">{entry.host}</span>
            <span className="timeline-text">
              {entry.text}
              {entry.output && <pre className="output">{entry.output.slice(0, 2000)}</pre>}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function byTask(all: Done[]): Map<string, Done[]> {
  const groups = new Map<string, Done[]>();
  for (const done of all) {
    const group = groups.get(done.task.task_id);
    if (group) group.push(done);
    else groups.set(done.task.task_id, [done]);
  }
  return groups;
}

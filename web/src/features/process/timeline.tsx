import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { Link } from "react-router";
import { splitProcess } from "@/api/processes";
import { useTail } from "@/features/events/use-tail";
import { ofEvent } from "@/messages/told";
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
  /** Who else could have been evicted, where it was a pool. */
  ranking?: string;
  host: React.ReactNode;
  output: string;
};

/** Events and operations on one axis, newest first. */
export default function Timeline({ process }: TabProps) {
  const { process: text, terms } = useMessages();
  const number = useNumbers();
  const { events, isLoading, error, retry, fetchOlder, isFetchingOlder } = useTail(
    splitProcess(process),
    false,
  );
  const operations = useQuery(operationsQuery(process));
  if (isLoading) return <Skeleton lines={10} />;
  if (error && events.length === 0) return <Failure error={error} onRetry={() => void retry()} />;

  const entries: Entry[] = events.map((event) => ({
    key: `event ${event.id}`,
    atMs: event.at_ms,
    what: <EventKindLabel event={event} />,
    text: terms.told(ofEvent(event)),
    ranking: event.details?.ranking ?? "",
    host: <Link to={hostPath(event.host)}>{event.host}</Link>,
    output: "",
  }));
  for (const [id, done] of byTask(operations.data ?? [])) {
    const first = done[0];
    if (!first) continue;
    const failed = done.filter((each) => each.code !== 0 && each.code !== 115).length;
    const operation = (first.operation ?? "status") as keyof typeof terms.operation;
    entries.push({
      key: id,
      atMs: first.at_ms,
      what: (
        <Badge tone={failed > 0 ? "failed" : "changing"}>{terms.operation[operation] ?? operation}</Badge>
      ),
      text: text.operationBy(terms.operation[operation] ?? operation, first.user),
      host: <Link to={taskPath(id)}>{done.length === 1 ? first.host : text.hosts(number(done.length))}</Link>,
      output: done.find((each) => each.output)?.output ?? "",
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
              {entry.ranking && (
                <span className="timeline-ranking">
                  {text.candidates}: {entry.ranking}
                </span>
              )}
              {entry.output && <pre className="output">{entry.output.slice(0, 2000)}</pre>}
            </span>
          </li>
        ))}
      </ol>
      {(fetchOlder || isFetchingOlder) && (
        <Button block type="link" loading={isFetchingOlder} onClick={() => void fetchOlder?.()}>
          {text.timelineOlder}
        </Button>
      )}
    </section>
  );
}

function byTask(all: Done[]): Map<string, Done[]> {
  const groups = new Map<string, Done[]>();
  for (const done of all) {
    const group = groups.get(done.task_id);
    if (group) group.push(done);
    else groups.set(done.task_id, [done]);
  }
  return groups;
}

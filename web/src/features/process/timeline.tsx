import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { Link } from "react-router";
import { splitProcess } from "@/api/processes";
import { useTail } from "@/features/events/use-tail";
import { ofEvent } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { EventKindLabel } from "@/ui/event-kind";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { hostPath, taskPath } from "@/ui/paths";
import { Badge } from "@/ui/phase";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { type Done, OPERATIONS_MAX, operationsQuery } from "./operations";
import type { TabProps } from "./process-page";

/** As much of an output as a line of the axis shows. */
const OUTPUT_MAX = 2000;

type Entry = {
  key: string;
  atMs: number;
  what: React.ReactNode;
  /** What is in words. */
  name: string;
  place: string;
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
    name: event.type,
    place: event.host,
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
      name: operation,
      place: done.map((each) => each.host).join(" "),
      text: text.operationBy(terms.operation[operation] ?? operation, first.user),
      host: <Link to={taskPath(id)}>{done.length === 1 ? first.host : text.hosts(number(done.length))}</Link>,
      output: done.find((each) => each.output)?.output ?? "",
    });
  }
  entries.sort((a, b) => b.atMs - a.atMs);
  const lines = entries.map((entry) => ({
    at_ms: entry.atMs,
    what: entry.name,
    host: entry.place,
    text: entry.text,
    output: entry.output,
  }));
  if (entries.length === 0) return <Empty title={text.timelineEmpty} />;
  return (
    <section className="panel timeline" aria-label={text.timelineOf}>
      <div className="panel-head">
        {operations.error && !operations.data ? (
          <span className="tone-warning">{text.timelineNoOperations}</span>
        ) : (
          <span className="muted">
            {text.timelineOf}
            {(operations.data?.length ?? 0) >= OPERATIONS_MAX &&
              ` · ${text.timelineCut(number(OPERATIONS_MAX))}`}
          </span>
        )}
        <span className="grow" />
        <ExportButton name="timeline" rows={lines} columns={["at_ms", "what", "host", "text", "output"]} />
      </div>
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
              {entry.output && <pre className="output">{entry.output.slice(0, OUTPUT_MAX)}</pre>}
              {entry.output.length > OUTPUT_MAX && <Link to="?tab=output">{text.outputCut}</Link>}
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

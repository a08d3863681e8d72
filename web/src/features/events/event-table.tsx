import { useQuery } from "@tanstack/react-query";
import { Drawer } from "antd";
import { Link } from "react-router";
import { type Event, eventQuery, fetchEventPage } from "@/api/events";
import { ofEvent } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { EventKindLabel } from "@/ui/event-kind";
import { ExportButton } from "@/ui/export";
import { JsonView } from "@/ui/json-view";
import { hostPath, processPath } from "@/ui/paths";
import { Empty, Failure, NotFound, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { useTail } from "./use-tail";

/** The columns of a file of events. */
export const exported = ["id", "at_ms", "type", "host", "process", "content", "details"] as const;

type ListProps = {
  events: Event[];
  isLoading: boolean;
  fetchOlder?: () => Promise<void>;
  isFetchingOlder?: boolean;
  /** Columns that say the same in every row. */
  omits?: readonly string[];
};

const hostOmits = ["host"];

/** Events as rows; a click shows one with its exact JSON. */
export function EventList({ events, isLoading, fetchOlder, isFetchingOlder, omits = [] }: ListProps) {
  const { events: text } = useMessages();
  const [open, setOpen] = useUrlValue("event");
  const columns = useEventColumns().filter((column) => !omits.includes(column.key));
  return (
    <>
      <DataTable
        label={text.title}
        isMain
        columns={columns}
        rows={events}
        rowKey={(event) => String(event.id)}
        isLoading={isLoading}
        onOpen={(event) => setOpen(String(event.id))}
        onEnd={fetchOlder && (() => void fetchOlder())}
        isFetchingMore={isFetchingOlder}
        empty={<Empty title={text.emptyTitle}>{text.emptyText}</Empty>}
      />
      <OneEvent id={open} events={events} onClose={() => setOpen(undefined)} />
    </>
  );
}

type OneProps = { id: string; events: Event[]; onClose: () => void };

/** One event as it is, whether the list has it or not. */
function OneEvent({ id, events, onClose }: OneProps) {
  const { events: text } = useMessages();
  const held = events.find((event) => String(event.id) === id);
  const query = useQuery({ ...eventQuery(Number(id)), enabled: id !== "" && !held });
  const event = held ?? query.data;
  return (
    <Drawer open={id !== ""} onClose={onClose} size="large" title={text.one}>
      {event ? (
        <div className="stack">
          <EventSummary event={event} />
          <JsonView value={event} label={text.json} />
        </div>
      ) : query.error ? (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      ) : query.data === null ? (
        <NotFound />
      ) : (
        <Skeleton />
      )}
    </Drawer>
  );
}

/** What happened, when and where, in words. */
function EventSummary({ event }: { event: Event }) {
  const { terms } = useMessages();
  return (
    <>
      <div className="row wrap">
        <EventKindLabel event={event} />
        {event.process && <Link to={processPath(event.process)}>{event.process}</Link>}
        <Link to={hostPath(event.host)} className="mono">
          {event.host}
        </Link>
        <span className="muted">
          <TimeMs at={event.at_ms} form="clock" /> · <TimeMs at={event.at_ms} />
        </span>
      </div>
      <p className="event-text">{terms.told(ofEvent(event))}</p>
    </>
  );
}

/** The live events of one host. */
export function HostEvents({ host }: { host: string }) {
  const filter = { host };
  const { error, retry, ...tail } = useTail(filter, false);
  if (error && tail.events.length === 0) return <Failure error={error} onRetry={() => void retry()} />;
  return (
    <>
      <div className="row">
        <span className="grow" />
        <ExportButton
          name="events"
          rows={tail.events}
          fetchPage={(after) => fetchEventPage(filter, after)}
          columns={exported}
        />
      </div>
      <EventList {...tail} omits={hostOmits} />
    </>
  );
}

function useEventColumns(): Column<Event>[] {
  const { events: text, terms } = useMessages();
  const { column } = text;
  return [
    {
      key: "time",
      title: column.time,
      width: "84px",
      render: (event) => <TimeMs at={event.at_ms} form="clock" />,
    },
    {
      key: "age",
      title: "",
      width: "100px",
      isNumber: true,
      from: 800,
      render: (event) => (
        <span className="muted">
          <TimeMs at={event.at_ms} />
        </span>
      ),
    },
    { key: "type", title: column.type, width: "156px", render: (event) => <EventKindLabel event={event} /> },
    {
      key: "process",
      title: column.process,
      width: "minmax(110px, 1fr)",
      from: 340,
      render: (event) => (event.process ? <Link to={processPath(event.process)}>{event.process}</Link> : ""),
    },
    {
      key: "host",
      title: column.host,
      width: "minmax(118px, 0.8fr)",
      from: 560,
      render: (event) => (
        <Link to={hostPath(event.host)} className="mono">
          {event.host}
        </Link>
      ),
    },
    {
      key: "content",
      title: column.content,
      width: "minmax(140px, 2.4fr)",
      from: 700,
      render: (event) => {
        const content = terms.told(ofEvent(event));
        return <span title={content}>{content}</span>;
      },
    },
  ];
}

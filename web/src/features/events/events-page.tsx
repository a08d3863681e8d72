import { CaretRightOutlined, PauseOutlined } from "@ant-design/icons";
import { Button, Select, Tag } from "antd";
import { eventKinds, fetchEventPage } from "@/api/events";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { formatClock, formatDay, useNumbers } from "@/ui/format";
import { Page } from "@/ui/page";
import { Badge } from "@/ui/phase";
import { Failure } from "@/ui/states";
import { useSetUrl, useUrlTime, useUrlValue } from "@/ui/url-state";
import { EventList, exported } from "./event-table";
import { EventHistogram } from "./histogram";
import { useTail } from "./use-tail";

export function Component() {
  const { events: text, common, terms } = useMessages();
  const number = useNumbers();
  const [paused, setPaused] = useUrlValue("paused");
  const isPaused = paused === "1";
  const [namespace] = useUrlValue("namespace");
  const [name] = useUrlValue("name");
  const [host] = useUrlValue("host");
  const [type, setType] = useUrlValue("type");
  const since = useUrlTime("since");
  const until = useUrlTime("until");
  const setUrl = useSetUrl();
  const filter = {
    namespace: namespace || undefined,
    name: name || undefined,
    host: host || undefined,
    type: type || undefined,
    since_ms: since && since * 1000,
    until_ms: until && until * 1000,
  };
  const tail = useTail(filter, isPaused);
  return (
    <Page
      title={text.title}
      isFilled
      beside={
        until !== undefined ? (
          <Badge tone="idle">{text.past}</Badge>
        ) : (
          <Badge tone={isPaused ? "warning" : "running"}>{isPaused ? text.paused : text.live}</Badge>
        )
      }
      actions={
        <>
          <ExportButton
            name="events"
            rows={tail.events}
            fetchPage={(after) => fetchEventPage(filter, after)}
            columns={exported}
          />
          {until !== undefined ? (
            <Button
              icon={<CaretRightOutlined />}
              onClick={() => setUrl({ since: undefined, until: undefined, paused: undefined })}
            >
              {text.toLive}
            </Button>
          ) : (
            <Button
              icon={isPaused ? <CaretRightOutlined /> : <PauseOutlined />}
              onClick={() => setPaused(isPaused ? undefined : "1")}
              aria-pressed={isPaused}
            >
              {isPaused
                ? `${text.resume}${tail.waiting > 0 ? ` · ${text.waiting(number(tail.waiting))}` : ""}`
                : text.pause}
            </Button>
          )}
        </>
      }
    >
      <div className="filters">
        <FilterInput name="namespace" label={text.filter.namespace} width={130} />
        <FilterInput name="name" label={text.filter.name} width={150} />
        <FilterInput name="host" label={text.filter.host} width={150} />
        <Select
          mode="multiple"
          allowClear
          maxTagCount={2}
          style={{ minWidth: 200 }}
          placeholder={text.filter.type}
          aria-label={text.filter.type}
          value={type ? type.split(",") : []}
          onChange={(values: string[]) => setType(values.join(","))}
          options={eventKinds.map((kind) => ({ value: kind, label: terms.event[kind] }))}
        />
        {since !== undefined && until !== undefined && (
          <Tag
            closable
            onClose={() => setUrl({ since: undefined, until: undefined })}
            className="event-window"
          >
            {formatDay(since * 1000, common.locale)} {formatClock(since * 1000, common.locale, "short")} –{" "}
            {formatClock(until * 1000, common.locale, "short")}
          </Tag>
        )}
      </div>
      <EventHistogram filter={filter} onPick={(from, to) => setUrl({ since: from, until: to })} />
      {tail.error && tail.events.length === 0 ? (
        <Failure error={tail.error} onRetry={() => void tail.retry()} />
      ) : (
        <EventList
          events={tail.events}
          isLoading={tail.isLoading}
          fetchOlder={tail.fetchOlder}
          isFetchingOlder={tail.isFetchingOlder}
        />
      )}
    </Page>
  );
}

import { CaretRightOutlined, PauseOutlined } from "@ant-design/icons";
import { Button, Select } from "antd";
import { useState } from "react";
import { eventKinds } from "@/api/events";
import { useMessages } from "@/settings/context";
import { ExportButton } from "@/ui/export";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { Page } from "@/ui/page";
import { Badge } from "@/ui/phase";
import { Failure } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { EventList } from "./event-table";
import { useTail } from "./use-tail";

export function Component() {
  const { events: text, terms } = useMessages();
  const number = useNumbers();
  const [isPaused, setPaused] = useState(false);
  const [namespace] = useUrlValue("namespace");
  const [name] = useUrlValue("name");
  const [host] = useUrlValue("host");
  const [type, setType] = useUrlValue("type");
  const filter = {
    namespace: namespace || undefined,
    name: name || undefined,
    host: host || undefined,
    type: type || undefined,
  };
  const tail = useTail(filter, isPaused);
  return (
    <Page
      title={text.title}
      isFilled
      beside={<Badge tone={isPaused ? "warning" : "running"}>{isPaused ? text.paused : text.live}</Badge>}
      actions={
        <>
          <ExportButton
            name="events"
            rows={tail.events}
            columns={["id", "at_ms", "type", "host", "process", "content", "details"]}
          />
          <Button
            icon={isPaused ? <CaretRightOutlined /> : <PauseOutlined />}
            onClick={() => setPaused(!isPaused)}
            aria-pressed={isPaused}
          >
            {isPaused
              ? `${text.resume}${tail.waiting > 0 ? ` · ${text.waiting(number(tail.waiting))}` : ""}`
              : text.pause}
          </Button>
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
      </div>
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

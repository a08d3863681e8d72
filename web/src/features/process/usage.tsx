import { Select } from "antd";
import { useEffect, useMemo, useState } from "react";
import type { Process } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { Chart, type Series } from "@/ui/chart";
import { formatPercent } from "@/ui/format";
import { Panel } from "@/ui/page";
import { useUrlValue } from "@/ui/url-state";
import type { TabProps } from "./process-page";

type Sample = { at: number; cpu: number; memory: number };

const SAMPLES_MAX = 720;

/** CPU and memory of one instance since the page was opened: the server keeps no history. */
export default function Usage({ instances }: TabProps) {
  const { process: text } = useMessages();
  const [host, setHost] = useUrlValue("host", instances[0]?.host ?? "");
  const instance = instances.find((each) => each.host === host) ?? instances[0];
  const samples = useSamples(instance);
  const times = useMemo(() => samples.map((sample) => sample.at), [samples]);
  const limits = instance?.spec?.limits;
  return (
    <div className="stack process-usage">
      <div className="filters">
        <Select
          showSearch
          style={{ minWidth: 170 }}
          aria-label={text.usageHost}
          value={instance?.host}
          onChange={setHost}
          options={instances.map((each) => ({ value: each.host, label: each.host }))}
        />
        <span className="muted">{text.usageLive}</span>
      </div>
      <UsageChart
        title={text.cpu}
        times={times}
        values={samples.map((sample) => sample.cpu)}
        limit={limits?.cpu}
      />
      <UsageChart
        title={text.memory}
        times={times}
        values={samples.map((sample) => sample.memory)}
        limit={limits?.memory}
      />
    </div>
  );
}

type ChartProps = { title: string; times: number[]; values: number[]; limit: number | null | undefined };

function UsageChart({ title, times, values, limit }: ChartProps) {
  const { process: text } = useMessages();
  const lists = useMemo(
    () => (limit == null ? [values] : [values, values.map(() => limit)]),
    [values, limit],
  );
  const series = useMemo<Series[]>(() => {
    const line: Series = { label: title, colour: "--accent" };
    return limit == null ? [line] : [line, { label: text.limit, colour: "--failed", isDashed: true }];
  }, [title, limit, text.limit]);
  const extra =
    limit == null ? undefined : (
      <span className="tone-failed">{`- - ${text.limit} ${formatPercent(limit)}`}</span>
    );
  return (
    <Panel title={title} extra={extra}>
      <div className="panel-body">
        {times.length < 2 ? (
          <p className="muted usage-waiting">{text.usageWaiting}</p>
        ) : (
          <Chart label={title} times={times} values={lists} series={series} format={formatPercent} />
        )}
      </div>
    </Panel>
  );
}

function useSamples(instance: Process | undefined): Sample[] {
  const [held, setHeld] = useState<{ host: string; samples: Sample[] }>({ host: "", samples: [] });
  useEffect(() => {
    if (!instance) return;
    const sample = {
      at: Math.round(Date.now() / 1000),
      cpu: instance.cpu_percent,
      memory: instance.memory_percent,
    };
    setHeld((now) => {
      const before = now.host === instance.host ? now.samples : [];
      if (before.at(-1)?.at === sample.at) return now;
      return { host: instance.host, samples: [...before, sample].slice(-SAMPLES_MAX) };
    });
  }, [instance]);
  return held.samples;
}

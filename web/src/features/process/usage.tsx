import { useQuery } from "@tanstack/react-query";
import { Segmented } from "antd";
import { useMemo } from "react";
import { type Event, evictionsQuery } from "@/api/events";
import { troubleTypes } from "@/api/overview";
import { splitProcess, type UsageRange, type Usage as UsageView, usageQuery } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { Chart, type Series } from "@/ui/chart";
import { formatRoundPercent } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Panel } from "@/ui/page";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { useInstancePicker } from "./instance-picker";
import type { TabProps } from "./process-page";
import { type Drawn, draw } from "./usage-lines";

const ranges = ["1h", "7d"] as const satisfies UsageRange[];

/** CPU and memory of one instance on one host against their limits, as the host has recorded them. */
export default function Usage({ process, instances }: TabProps) {
  const { process: text } = useMessages();
  const { host, instance, picker } = useInstancePicker(instances);
  const [wanted, setRange] = useUrlValue("range", "1h");
  const range = ranges.find((each) => each === wanted) ?? "1h";
  const { namespace, name } = splitProcess(process);
  const query = useQuery(usageQuery(namespace, name, host, range, instance));
  return (
    <div className="stack process-usage">
      <div className="filters is-short">
        {picker}
        <Segmented
          aria-label={text.usageRange}
          value={range}
          onChange={setRange}
          options={ranges.map((each) => ({ value: each, label: text.usageRanges[each] }))}
        />
        {query.data && <span className="muted">{text.usageStep(query.data.step)}</span>}
        <Freshness updatedAt={query.dataUpdatedAt} expectedMs={range === "1h" ? 30_000 : 180_000} />
      </div>
      {query.isPending && <Skeleton lines={14} />}
      {query.error && !query.data && <Failure error={query.error} onRetry={() => void query.refetch()} />}
      {query.data && <History usage={query.data} />}
    </div>
  );
}

function History({ usage }: { usage: UsageView }) {
  const { process: text } = useMessages();
  const drawn = useMemo(() => draw(usage), [usage]);
  const { evictions, isUnknown } = useEvictions(usage, drawn?.times[0]);
  if (usage.state !== "kept") return <Empty title={text.usageState[usage.state]} />;
  if (!drawn) return <Empty title={text.usageEmpty} />;
  return (
    <>
      <UsageChart
        title={text.cpu}
        drawn={drawn}
        evictions={evictions}
        avg={drawn.cpu}
        max={drawn.cpuMax}
        limit={usage.cpu_limit ?? undefined}
      />
      <UsageChart
        title={text.memory}
        drawn={drawn}
        evictions={evictions}
        avg={drawn.memory}
        max={drawn.memoryMax}
        limit={usage.memory_limit ?? undefined}
      />
      {drawn.restarts.length > 0 && <p className="muted">{text.usageRestarts(drawn.restarts.length)}</p>}
      {isUnknown && <p className="tone-warning">{text.usageNoEvictions}</p>}
      {evictions.length > 0 && <p className="tone-failed">{text.usageEvictions(evictions.length)}</p>}
    </>
  );
}

const noEvents: Event[] = [];

/** When the process was ended on this host for using too much, in Unix seconds. */
function useEvictions({ process, host }: UsageView, since: number | undefined) {
  const type = troubleTypes.evictions.join(",");
  const query = useQuery(evictionsQuery({ ...splitProcess(process), host, type }));
  const events = query.data ?? noEvents;
  const evictions = useMemo(
    () => events.map((event) => event.at_ms / 1000).filter((at) => since !== undefined && at >= since),
    [events, since],
  );
  return { evictions, isUnknown: query.error !== null && !query.data };
}

type Line = (number | null)[];
type ChartProps = {
  title: string;
  drawn: Drawn;
  evictions: number[];
  avg: Line;
  max: Line;
  limit: number | undefined;
};

function UsageChart({ title, drawn, evictions, avg, max, limit }: ChartProps) {
  const { process: text } = useMessages();
  const values = useMemo(
    () => (limit === undefined ? [max, avg] : [max, avg, drawn.times.map(() => limit)]),
    [avg, max, limit, drawn],
  );
  const series = useMemo<Series[]>(() => {
    const lines: Series[] = [
      { label: text.usageMax, colour: "--text-3" },
      { label: text.usageAverage, colour: "--accent" },
    ];
    return limit === undefined
      ? lines
      : [...lines, { label: text.limit, colour: "--failed", isDashed: true }];
  }, [limit, text]);
  const extra = (
    <>
      <span className="usage-average">{`— ${text.usageAverage}`}</span>
      <span className="muted">{`— ${text.usageMax}`}</span>
      {limit !== undefined && (
        <span className="tone-failed">{` - - ${text.limit} ${formatRoundPercent(limit)}`}</span>
      )}
    </>
  );
  return (
    <Panel title={title} extra={extra}>
      <div className="panel-body">
        <Chart
          label={title}
          times={drawn.times}
          values={values}
          series={series}
          marks={drawn.restarts}
          failures={evictions}
          format={formatRoundPercent}
        />
      </div>
    </Panel>
  );
}

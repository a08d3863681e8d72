import { useQuery } from "@tanstack/react-query";
import { Tabs } from "antd";
import { lazy, Suspense } from "react";
import { useParams } from "react-router";
import { INSTANCES_MAX, joinProcess, type Process, processQuery } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { CopyButton } from "@/ui/copy";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Page } from "@/ui/page";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import { Instances } from "./instances";
import { PhaseSums } from "./phase-sums";
import { ProcessActions } from "./process-actions";
import "./process.css";

const Timeline = lazy(() => import("./timeline"));
const Usage = lazy(() => import("./usage"));
const SpecTab = lazy(() => import("./spec-tab"));
const Output = lazy(() => import("./output"));
const Log = lazy(() => import("./log"));

export type TabProps = { process: string; instances: Process[] };

const views = {
  instances: Instances,
  timeline: Timeline,
  usage: Usage,
  spec: SpecTab,
  output: Output,
  log: Log,
};
type TabName = keyof typeof views;

const exported = [
  "host",
  "online",
  "phase",
  "phase_since",
  "reason",
  "pid",
  "cpu_percent",
  "memory_percent",
  "memory_bytes",
  "restarts",
  "started_at",
  "health",
  "version",
] as const;

export function Component() {
  const { namespace = "", name = "" } = useParams();
  const { process: text, processes } = useMessages();
  const number = useNumbers();
  const query = useQuery(processQuery(namespace, name));
  const [wanted, setTab] = useUrlValue("tab", "instances");
  const tab: TabName = Object.hasOwn(views, wanted) ? (wanted as TabName) : "instances";
  const View = views[tab];
  const process = joinProcess(namespace, name);
  const instances = query.data ?? [];
  const crumbs = [
    { label: processes.title, to: "/processes" },
    { label: namespace, to: `/processes?namespace=${encodeURIComponent(namespace)}` },
  ];
  return (
    <Page
      title={name}
      crumbs={crumbs}
      isFilled
      beside={
        <>
          <CopyButton text={process} />
          {instances.length > 0 && <Freshness updatedAt={query.dataUpdatedAt} />}
        </>
      }
      actions={
        instances.length > 0 && (
          <>
            {tab === "instances" && (
              <ExportButton name={`${namespace}-${name}`} rows={instances} columns={exported} />
            )}
            <ProcessActions process={process} instances={instances} />
          </>
        )
      }
    >
      {query.isPending && <Skeleton lines={10} />}
      {query.error && instances.length === 0 && (
        <Failure error={query.error} onRetry={() => void query.refetch()} />
      )}
      {query.isSuccess && instances.length === 0 && <Empty title={text.notRegistered} />}
      {instances.length > 0 && (
        <>
          {instances.length >= INSTANCES_MAX && (
            <p className="tone-warning">{text.instancesCut(number(instances.length))}</p>
          )}
          <PhaseSums instances={instances} />
          <Tabs
            activeKey={tab}
            onChange={setTab}
            items={(Object.keys(views) as TabName[]).map((key) => ({ key, label: text.tab[key] }))}
          />
          <Suspense fallback={<Skeleton lines={8} />}>
            <View process={process} instances={instances} />
          </Suspense>
        </>
      )}
    </Page>
  );
}

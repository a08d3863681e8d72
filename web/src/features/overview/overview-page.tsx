import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { type Overview, overviewQuery, SUMS_EVERY_MS } from "@/api/overview";
import { useMessages } from "@/settings/context";
import { Freshness } from "@/ui/freshness";
import { Page } from "@/ui/page";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Attention } from "./attention";
import { FleetMap } from "./fleet-map";
import { History } from "./history";
import { Sidebar } from "./sidebar";
import { Stats } from "./stats";
import { Verdict } from "./verdict";
import "./overview.css";

export function Component() {
  const { overview: text } = useMessages();
  const { data, dataUpdatedAt, error, refetch } = useQuery(overviewQuery);
  return (
    <Page
      title={text.title}
      beside={
        data && (
          <>
            <Verdict data={data} />
            <Freshness updatedAt={dataUpdatedAt} expectedMs={SUMS_EVERY_MS * 1.5} />
          </>
        )
      }
    >
      {data ? (
        <Content data={data} />
      ) : error ? (
        <Failure error={error} onRetry={() => void refetch()} />
      ) : (
        <Skeleton lines={14} height={32} />
      )}
    </Page>
  );
}

function Content({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  if (data.hosts.total === 0) {
    return (
      <Empty title={text.noHosts}>
        <Link to="/enrol">{text.enrol}</Link>
      </Empty>
    );
  }
  return (
    <>
      <Stats data={data} />
      <div className="overview-grid">
        <div className="stack">
          <Attention data={data} />
          <History />
          <FleetMap />
        </div>
        <Sidebar data={data} />
      </div>
    </>
  );
}

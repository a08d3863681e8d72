import { Link } from "react-router";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Page } from "@/ui/page";
import { Badge } from "@/ui/phase";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Time, useNow } from "@/ui/time";
import { concernsOf } from "./attention";
import { FleetMap } from "./fleet-map";
import { History } from "./history";
import { Sidebar } from "./sidebar";
import { Stats } from "./stats";
import { type Overview, useOverview } from "./use-overview";
import "./overview.css";

export function Component() {
  const { overview: text } = useMessages();
  const { data, updatedAt, error, retry } = useOverview();
  return (
    <Page title={text.title} beside={data && <Freshness updatedAt={updatedAt} />}>
      {data ? (
        <Content data={data} />
      ) : error ? (
        <Failure error={error} onRetry={retry} />
      ) : (
        <Skeleton lines={14} height={32} />
      )}
    </Page>
  );
}

function Content({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  if (data.hosts.length === 0) {
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
          <History events={data.events} />
          <FleetMap data={data} />
        </div>
        <Sidebar data={data} />
      </div>
    </>
  );
}

function Attention({ data }: { data: Overview }) {
  const messages = useMessages();
  const { overview: text } = messages;
  const number = useNumbers();
  const now = useNow();
  const concerns = concernsOf(data, now / 1000, messages);
  return (
    <section className="panel" aria-label={text.attention}>
      <div className="panel-head">
        <h2 className="grow">{text.attention}</h2>
        {concerns.length === 0 && <Badge tone="running">{text.allWell}</Badge>}
      </div>
      {concerns.length === 0 ? (
        <p className="muted panel-body overview-quiet">{text.allWellText}</p>
      ) : (
        <ol className="concerns">
          {concerns.map((concern) => (
            <li key={concern.key}>
              <Badge tone={concern.tone}>{text.kind[concern.kind]}</Badge>
              <Link to={concern.to} className="truncate">
                {concern.what}
              </Link>
              <span className="muted">
                {concern.kind === "host_away" ? "" : text.onHosts(number(concern.count))}
              </span>
              <span className="truncate grow" title={concern.reason}>
                {concern.reason}
              </span>
              {concern.since !== null && (
                <span className="muted">
                  <Time at={concern.since} />
                </span>
              )}
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

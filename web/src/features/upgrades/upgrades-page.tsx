import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { Link } from "react-router";
import { type Build, buildsQuery, isUnderWay, type Upgrade, upgradesQuery } from "@/api/fleet";
import { NEVER_CONNECTED } from "@/api/hosts";
import { overviewQuery } from "@/api/overview";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { ExportButton } from "@/ui/export";
import { formatBytes, useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Page, Panel } from "@/ui/page";
import { upgradePath } from "@/ui/paths";
import { Guarded } from "@/ui/rights";
import { SimpleTable } from "@/ui/simple-table";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { linkTo, useUrlValue } from "@/ui/url-state";
import { UpgradeDialog } from "./upgrade-dialog";
import { UpgradeState } from "./upgrade-state";
import "./upgrades.css";

/** Which versions there are, which run, and how the fleet came or comes from one to the other. */
export function Component() {
  const { upgrades: text } = useMessages();
  const builds = useQuery(buildsQuery);
  const upgrades = useQuery(upgradesQuery);
  const [shown, setShown] = useUrlValue("do");
  const current = upgrades.data?.find(isUnderWay);
  const reason = builds.data?.length === 0 ? text.noBuilds : current ? text.oneAtATime : undefined;
  return (
    <Page
      title={text.title}
      beside={<Freshness updatedAt={upgrades.dataUpdatedAt} expectedMs={60_000} />}
      actions={
        <>
          <ExportButton
            name="upgrades"
            rows={upgrades.data ?? []}
            columns={["id", "version", "state", "reason", "rings", "created_by", "created_at", "changed_at"]}
          />
          <Guarded need="admin" reason={reason}>
            {(isAllowed) => (
              <Button type="primary" disabled={!isAllowed} onClick={() => setShown("start")}>
                {text.start}
              </Button>
            )}
          </Guarded>
        </>
      }
    >
      <Panel title={text.history}>
        {upgrades.isPending && <Skeleton lines={3} />}
        {upgrades.error && !upgrades.data && (
          <Failure error={upgrades.error} need="admin" onRetry={() => void upgrades.refetch()} />
        )}
        {upgrades.data && <Upgrades upgrades={upgrades.data} />}
      </Panel>
      <div className="upgrades-split">
        <Panel
          title={text.builds}
          extra={
            <ExportButton
              name="builds"
              rows={builds.data ?? []}
              columns={["name", "version", "arch", "bytes", "sha256"]}
            />
          }
        >
          {builds.isPending && <Skeleton lines={3} />}
          {builds.error && !builds.data && (
            <Failure error={builds.error} need="admin" onRetry={() => void builds.refetch()} />
          )}
          {builds.data && <Builds builds={builds.data} />}
        </Panel>
        <Installed />
      </div>
      {shown === "start" && reason === undefined && builds.data && (
        <UpgradeDialog builds={builds.data} onClose={() => setShown(undefined)} />
      )}
    </Page>
  );
}

function Upgrades({ upgrades }: { upgrades: Upgrade[] }) {
  const { upgrades: text, terms } = useMessages();
  const number = useNumbers();
  const { column } = text;
  return (
    <SimpleTable
      label={text.history}
      rows={upgrades}
      rowKey={(upgrade) => upgrade.id}
      empty={text.empty}
      columns={[
        {
          key: "version",
          title: column.version,
          render: (upgrade) => (
            <Link to={upgradePath(upgrade.id)} className="mono">
              {upgrade.version}
            </Link>
          ),
        },
        { key: "state", title: column.state, render: (upgrade) => <UpgradeState state={upgrade.state} /> },
        {
          key: "hosts",
          title: column.hosts,
          isNumber: true,
          render: (upgrade) => number(upgrade.rings.reduce((sum, hosts) => sum + hosts, 0)),
        },
        {
          key: "rings",
          title: column.rings,
          isMinor: true,
          render: (upgrade) => upgrade.rings.map((hosts) => number(hosts)).join(" + "),
        },
        {
          key: "reason",
          title: column.reason,
          isMinor: true,
          render: (upgrade) => terms.told(ofReason(upgrade)),
        },
        { key: "by", title: column.by, isMinor: true, render: (upgrade) => upgrade.created_by },
        {
          key: "started",
          title: column.started,
          isNumber: true,
          render: (upgrade) => <Time at={upgrade.created_at} />,
        },
        {
          key: "changed",
          title: column.changed,
          isNumber: true,
          isMinor: true,
          render: (upgrade) => <Time at={upgrade.changed_at} />,
        },
      ]}
    />
  );
}

function Builds({ builds }: { builds: Build[] }) {
  const { upgrades: text } = useMessages();
  if (builds.length === 0) return <Empty title={text.buildsEmpty}>{text.buildsEmptyText}</Empty>;
  return (
    <>
      <SimpleTable
        label={text.builds}
        rows={builds}
        rowKey={(build) => build.name}
        columns={[
          {
            key: "version",
            title: text.build.version,
            render: (build) => <span className="mono">{build.version}</span>,
          },
          { key: "arch", title: text.build.arch, render: (build) => build.arch },
          {
            key: "name",
            title: text.build.name,
            isMinor: true,
            render: (build) => <span className="mono">{build.name}</span>,
          },
          {
            key: "size",
            title: text.build.size,
            isNumber: true,
            render: (build) => formatBytes(build.bytes),
          },
          {
            key: "sha256",
            title: text.build.sha256,
            isMinor: true,
            render: (build) => <CopyText text={build.sha256} shown={`${build.sha256.slice(0, 16)}…`} />,
          },
        ]}
      />
      <p className="muted upgrades-note">{text.buildsHelp}</p>
    </>
  );
}

/** What runs on the hosts now, each a link to them. */
function Installed() {
  const { upgrades: text, common } = useMessages();
  const number = useNumbers();
  const { data, error, isPending, refetch } = useQuery(overviewQuery);
  return (
    <Panel title={text.installed}>
      {isPending && <Skeleton lines={3} />}
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      {data?.agent_versions.length === 0 && <p className="muted upgrades-note">{common.none}</p>}
      <ul className="upgrades-versions">
        {data?.agent_versions.map(({ version, hosts }) => (
          <li key={version}>
            <Link to={linkTo("/hosts", { version: version || NEVER_CONNECTED })} className="mono truncate">
              {version || common.unknown}
            </Link>
            <span className="grow" />
            <span>{text.hostsOn(number(hosts))}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

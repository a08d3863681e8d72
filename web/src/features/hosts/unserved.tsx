import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { type UnservedHost, unservedQuery } from "@/api/fleet";
import { allowRejoin, removeHost, revokeHost, withdrawRejoin } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Page } from "@/ui/page";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { linkTo } from "@/ui/url-state";
import { useAction } from "@/ui/use-action";
import { useBusinessName } from "@/ui/use-business-name";
import { HostViewSwitch } from "./view-switch";

const HOSTS = ["hosts"];
const REJOIN_SECS = 3600;
const exported = [
  "host",
  "business",
  "processes",
  "since",
  "revoked_at",
  "rejoin_until",
  "key_fingerprint",
] as const satisfies readonly (keyof UnservedHost)[];

/** Hosts whose agents have left them for others, with what can be done about each. */
export function UnservedHosts() {
  const { hosts } = useMessages();
  const { unserved: text } = hosts;
  const query = useQuery(unservedQuery);
  const rows = query.data ?? [];
  return (
    <Page
      title={text.title}
      crumbs={[{ label: hosts.title, to: "/hosts" }]}
      beside={<Freshness updatedAt={query.dataUpdatedAt} expectedMs={60_000} />}
      actions={
        <>
          <HostViewSwitch />
          <ExportButton name="hosts-without-agent" rows={rows} columns={exported} />
        </>
      }
    >
      {query.isPending && <Skeleton />}
      {query.error && !query.data && (
        <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
      )}
      {query.data?.length === 0 && <Empty title={text.emptyTitle}>{text.emptyText}</Empty>}
      {rows.length > 0 && (
        <>
          <p className="muted flush">{text.help}</p>
          <div className="panel">
            <Table rows={rows} />
          </div>
        </>
      )}
    </Page>
  );
}

function Table({ rows }: { rows: UnservedHost[] }) {
  const { hosts } = useMessages();
  const { unserved: text, column } = hosts;
  const number = useNumbers();
  const businessName = useBusinessName();
  return (
    <SimpleTable
      label={text.title}
      rows={rows}
      rowKey={(row) => row.host}
      columns={[
        { key: "host", title: column.host, render: (row) => <CopyText text={row.host} /> },
        { key: "state", title: text.state, render: (row) => <State row={row} /> },
        {
          key: "processes",
          title: text.processes,
          isNumber: true,
          render: (row) => <Link to={linkTo("/processes", { host: row.host })}>{number(row.processes)}</Link>,
        },
        {
          key: "business",
          title: column.business,
          isMinor: true,
          render: (row) => businessName(row.business),
        },
        {
          key: "key",
          title: text.key,
          isMinor: true,
          render: ({ key_fingerprint: key }) => <CopyText text={key} shown={`${key.slice(0, 12)}…`} />,
        },
        {
          key: "since",
          title: column.since,
          isNumber: true,
          isMinor: true,
          render: (row) => <Time at={row.since} />,
        },
      ]}
      actions={(row) => <RowActions row={row} />}
    />
  );
}

function State({ row }: { row: UnservedHost }) {
  const { hosts } = useMessages();
  const { unserved: text } = hosts;
  if (row.rejoin_until != null) {
    return (
      <span className="tone-changing">
        {text.rejoinUntil} <Time at={row.rejoin_until} />
      </span>
    );
  }
  if (row.revoked_at != null) return <span className="tone-warning">{text.keyRevoked}</span>;
  return <span className="muted">{text.keyValid}</span>;
}

function RowActions({ row }: { row: UnservedHost }) {
  const { hosts: text } = useMessages();
  const number = useNumbers();
  const { act, ask } = useAction();
  const title = (what: string) => `${row.host}: ${what.replace("…", "")}`;
  return (
    <>
      {row.rejoin_until != null ? (
        <RowButton onClick={() => void act(() => withdrawRejoin(row.host), HOSTS)}>
          {text.unserved.withdraw}
        </RowButton>
      ) : (
        <RowButton
          onClick={() =>
            ask(
              { title: title(text.rejoin), text: text.rejoinText, yes: text.rejoinDo, isHarmless: true },
              () => allowRejoin(row.host, REJOIN_SECS),
              HOSTS,
            )
          }
        >
          {text.unserved.allow}
        </RowButton>
      )}
      {row.revoked_at == null && (
        <RowButton
          isDangerous
          onClick={() =>
            ask(
              { title: title(text.revoke), text: text.unserved.revokeText, yes: text.revokeDo },
              () => revokeHost(row.host),
              HOSTS,
            )
          }
        >
          {text.unserved.revoke}
        </RowButton>
      )}
      <RowButton
        isDangerous
        onClick={() =>
          ask(
            {
              title: title(text.remove),
              text: text.unserved.removeText(number(row.processes)),
              yes: text.removeDo,
              count: row.processes,
            },
            () => removeHost(row.host),
            HOSTS,
          )
        }
      >
        {text.removeDo}
      </RowButton>
    </>
  );
}

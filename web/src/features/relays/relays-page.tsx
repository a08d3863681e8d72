import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { type Relay, relaysQuery, revokeRelay } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Page } from "@/ui/page";
import { type Tone, ToneIcon } from "@/ui/phase";
import { Guarded } from "@/ui/rights";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { useAction } from "@/ui/use-action";
import { RelayDialog } from "./relay-dialog";
import "./relays.css";

export function Component() {
  const { relays: text } = useMessages();
  const number = useNumbers();
  const query = useQuery(relaysQuery);
  const [shown, setShown] = useUrlValue("do");
  const relays = query.data ?? [];
  const connected = relays.filter((relay) => relay.connected).length;
  const away = relays.filter((relay) => !relay.connected && relay.revoked_at == null).length;
  return (
    <Page
      title={text.title}
      beside={
        <>
          {relays.length > 0 && <span className="muted">{text.counts(number(connected), number(away))}</span>}
          <Freshness updatedAt={query.dataUpdatedAt} />
        </>
      }
      actions={
        <>
          <ExportButton
            name="relays"
            rows={relays}
            columns={[
              "relay",
              "cloud",
              "connected",
              "agents",
              "connections",
              "version",
              "address",
              "enrolled_at",
              "last_seen_at",
              "revoked_at",
              "key_fingerprint",
            ]}
          />
          <Guarded need="admin">
            {(isAllowed) => (
              <Button type="primary" disabled={!isAllowed} onClick={() => setShown("add")}>
                {text.add}
              </Button>
            )}
          </Guarded>
        </>
      }
    >
      {query.isPending && <Skeleton />}
      {query.error && !query.data && (
        <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
      )}
      {query.data?.length === 0 && <Empty title={text.emptyTitle}>{text.emptyText}</Empty>}
      {cloudsWithout(relays).map((cloud) => (
        <p key={cloud} className="relay-away" role="status">
          {text.allAway(cloud)}
        </p>
      ))}
      {relays.length > 0 && <List relays={relays} />}
      {shown === "add" && query.data && <RelayDialog onClose={() => setShown(undefined)} />}
    </Page>
  );
}

/** The end of a long id tells it from others. */
const shortId = (id: string) => (id.length > 16 ? `…${id.slice(-12)}` : id);

/** The areas whose relays are all away. */
export function cloudsWithout(relays: readonly Relay[]): number[] {
  const valid = relays.filter((relay) => relay.revoked_at == null);
  const reached = new Set(valid.filter((relay) => relay.connected).map((relay) => relay.cloud));
  return [...new Set(valid.map((relay) => relay.cloud))].filter((cloud) => !reached.has(cloud));
}

const tones: Record<"connected" | "away" | "revoked", Tone> = {
  connected: "running",
  away: "warning",
  revoked: "idle",
};

function State({ relay }: { relay: Relay }) {
  const { relays: text } = useMessages();
  const state = relay.revoked_at != null ? "revoked" : relay.connected ? "connected" : "away";
  return (
    <span className={`phase tone-${tones[state]}`}>
      <ToneIcon tone={tones[state]} />
      {text[state]}
    </span>
  );
}

function List({ relays }: { relays: Relay[] }) {
  const { relays: text, common } = useMessages();
  const number = useNumbers();
  const { ask } = useAction();
  const revoke = (relay: Relay) =>
    ask(
      {
        title: text.revokeTitle(relay.relay),
        text: text.revokeText(number(relay.agents)),
        yes: text.revoke,
        count: relay.agents,
      },
      () => revokeRelay(relay.relay),
      ["relays"],
    );
  return (
    <div className="panel">
      <SimpleTable
        label={text.title}
        rows={relays}
        rowKey={(relay) => relay.relay}
        columns={[
          {
            key: "relay",
            title: text.column.relay,
            render: ({ relay }) => <CopyText text={relay} shown={shortId(relay)} />,
          },
          { key: "cloud", title: text.column.cloud, isNumber: true, render: (relay) => relay.cloud },
          { key: "state", title: text.column.state, render: (relay) => <State relay={relay} /> },
          {
            key: "agents",
            title: text.column.agents,
            isNumber: true,
            render: (relay) => number(relay.agents),
          },
          {
            key: "connections",
            title: text.column.connections,
            isNumber: true,
            isMinor: true,
            render: (relay) => number(relay.connections),
          },
          {
            key: "version",
            title: text.column.version,
            isMinor: true,
            render: (relay) => relay.version ?? common.unknown,
          },
          {
            key: "address",
            title: text.column.address,
            isMinor: true,
            render: (relay) => <span className="mono">{relay.address ?? ""}</span>,
          },
          {
            key: "key",
            title: text.column.key,
            isMinor: true,
            render: (relay) => (
              <CopyText text={relay.key_fingerprint} shown={`${relay.key_fingerprint.slice(0, 12)}…`} />
            ),
          },
          {
            key: "seen",
            title: text.column.since,
            isNumber: true,
            isMinor: true,
            render: (relay) => (relay.last_seen_at ? <Time at={relay.last_seen_at} /> : common.never),
          },
          {
            key: "enrolled",
            title: text.column.enrolled,
            isNumber: true,
            isMinor: true,
            render: (relay) => <Time at={relay.enrolled_at} />,
          },
        ]}
        actions={(relay) =>
          relay.revoked_at == null && (
            <RowButton isDangerous onClick={() => revoke(relay)}>
              {text.revoke}
            </RowButton>
          )
        }
      />
    </div>
  );
}

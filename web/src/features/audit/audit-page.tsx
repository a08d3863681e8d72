import { DownloadOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Button, Drawer } from "antd";
import { useMemo } from "react";
import { type AuditEntry, auditEntryQuery, auditVerdictQuery } from "@/api/server";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { type Column, DataTable } from "@/ui/data-table";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { JsonView } from "@/ui/json-view";
import { Page } from "@/ui/page";
import { Badge, type Tone } from "@/ui/phase";
import { Empty, Failure, NotFound, Skeleton } from "@/ui/states";
import { TimeMs } from "@/ui/time";
import { TimeRange } from "@/ui/time-range";
import { linkTo, useUrlTime, useUrlValue } from "@/ui/url-state";
import { useAudit } from "./use-audit";

export function Component() {
  const { audit: text, common } = useMessages();
  const verdict = useQuery(auditVerdictQuery);
  const [user] = useUrlValue("user");
  const [app] = useUrlValue("app");
  const [action] = useUrlValue("action");
  const since = useUrlTime("since");
  const until = useUrlTime("until");
  const [entry, setEntry] = useUrlValue("entry");
  const filter = useMemo(
    () => ({ user: user || undefined, app: app || undefined, action: action || undefined, since, until }),
    [user, app, action, since, until],
  );
  const columns = useAuditColumns();
  const list = useAudit(filter);
  return (
    <Page
      title={text.title}
      isFilled
      beside={<Verdict />}
      actions={
        <>
          <Freshness updatedAt={list.dataUpdatedAt} />
          <Button loading={list.isRefetching} onClick={() => void list.refetch()}>
            {common.refresh}
          </Button>
          <Button
            icon={<DownloadOutlined />}
            href={linkTo("/api/v1/audit/export", filter)}
            download="audit.jsonl"
          >
            {text.exportAll}
          </Button>
        </>
      }
    >
      <div className="filters">
        <FilterInput name="user" label={text.filter.user} />
        <FilterInput name="app" label={text.filter.app} />
        <FilterInput name="action" label={text.filter.action} />
        <TimeRange />
        <span className="grow" />
        {verdict.data && (
          <span className="row muted" title={text.lastHashHelp}>
            {text.lastHash}{" "}
            <CopyText text={verdict.data.last_hash} shown={`${verdict.data.last_hash.slice(0, 12)}…`} />
          </span>
        )}
      </div>
      {list.error && list.entries.length === 0 ? (
        <Failure error={list.error} need="admin" onRetry={() => void list.refetch()} />
      ) : (
        <DataTable
          label={text.title}
          isMain
          columns={columns}
          rows={list.entries}
          rowKey={(entry) => String(entry.seq)}
          isLoading={list.isPending}
          onOpen={(row) => setEntry(String(row.seq))}
          onEnd={list.hasNextPage && !list.isFetchingNextPage ? () => void list.fetchNextPage() : undefined}
          isFetchingMore={list.isFetchingNextPage}
          empty={<Empty title={text.empty} />}
        />
      )}
      <OneEntry seq={entry} entries={list.entries} onClose={() => setEntry(undefined)} />
    </Page>
  );
}

type EntryProps = { seq: string; entries: AuditEntry[]; onClose: () => void };

/** One entry as it is, whether the list has it or not. */
function OneEntry({ seq, entries, onClose }: EntryProps) {
  const { audit: text } = useMessages();
  const held = entries.find((each) => String(each.seq) === seq);
  const query = useQuery({ ...auditEntryQuery(Number(seq)), enabled: seq !== "" && !held });
  const open = held ?? query.data;
  return (
    <Drawer open={seq !== ""} onClose={onClose} size="large" title={`${text.entry} ${seq}`}>
      {open ? (
        <JsonView value={open} label={text.entry} />
      ) : query.error ? (
        <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
      ) : query.data === null ? (
        <NotFound />
      ) : (
        <Skeleton />
      )}
    </Drawer>
  );
}

/** Whether the chain of hashes holds, and when that was checked. */
function Verdict() {
  const { audit: text } = useMessages();
  const number = useNumbers();
  const { data, dataUpdatedAt, error, isFetching, refetch } = useQuery(auditVerdictQuery);
  const again = (
    <Button size="small" type="link" loading={isFetching} onClick={() => void refetch()}>
      {text.verify}
    </Button>
  );
  if (!data && error) {
    return (
      <span className="row wrap" title={error.message}>
        <Badge tone="warning">{text.unverified}</Badge>
        {again}
      </span>
    );
  }
  if (!data) return <span className="muted">{isFetching ? text.verifying : ""}</span>;
  const state = data.intact ? text.intact(number(data.entries)) : text.broken(number(data.broken_at ?? 0));
  return (
    <span className="row wrap">
      <Badge tone={data.intact ? "running" : "failed"}>{state}</Badge>
      <span className="muted">
        {text.verifiedAt} <TimeMs at={dataUpdatedAt} />
      </span>
      {again}
    </span>
  );
}

const tones: Record<string, Tone> = {
  begun: "changing",
  ended: "running",
  done: "running",
  refused: "failed",
};

function useAuditColumns(): Column<AuditEntry>[] {
  const { audit: text } = useMessages();
  const number = useNumbers();
  const { column } = text;
  const phases: Record<string, string> = text.phase;
  return [
    { key: "seq", title: column.seq, width: "64px", isNumber: true, from: 500, render: (entry) => entry.seq },
    {
      key: "time",
      title: column.time,
      width: "92px",
      isNumber: true,
      render: (entry) => <TimeMs at={entry.at} />,
    },
    { key: "user", title: column.user, width: "minmax(80px, 0.7fr)", render: (entry) => entry.user },
    { key: "app", title: column.app, width: "minmax(64px, 0.5fr)", from: 640, render: (entry) => entry.app },
    {
      key: "action",
      title: column.action,
      width: "minmax(156px, 1fr)",
      render: (entry) => (
        <span className="mono" title={entry.action}>
          {entry.action}
        </span>
      ),
    },
    {
      key: "phase",
      title: column.phase,
      width: "92px",
      from: 460,
      render: (entry) => (
        <Badge tone={tones[entry.phase] ?? "idle"}>{phases[entry.phase] ?? entry.phase}</Badge>
      ),
    },
    {
      key: "targets",
      title: column.targets,
      width: "minmax(160px, 2.4fr)",
      from: 800,
      render: (entry) => (
        <span title={entry.targets.slice(0, 20).join("\n")}>
          {entry.target_count > 1 && <b>{number(entry.target_count)} · </b>}
          {entry.targets.slice(0, 3).join(", ")}
        </span>
      ),
    },
    {
      key: "outcome",
      title: column.outcome,
      width: "minmax(110px, 1.3fr)",
      from: 1000,
      render: (entry) => <span title={entry.outcome}>{entry.outcome}</span>,
    },
    {
      key: "remote",
      title: column.remote,
      width: "110px",
      from: 1100,
      render: (entry) => <span className="mono">{entry.remote ?? ""}</span>,
    },
  ];
}

import { ReloadOutlined } from "@ant-design/icons";
import { Button } from "antd";
import { useMemo } from "react";
import { Link } from "react-router";
import { useMessages } from "@/settings/context";
import { type ChangeFate, changeFates, type PlannedRow, type useChangePlan } from "./change-plan";
import { type Column, DataTable } from "./data-table";
import { ExportButton } from "./export";
import { useNumbers } from "./format";
import { hostPath } from "./paths";
import { Badge, type Tone } from "./phase";
import { Failure, Skeleton } from "./states";
import { TimeMs } from "./time";
import "./change-plan.css";

const tones: Record<ChangeFate, Tone> = {
  now: "running",
  later: "warning",
  same: "idle",
  forbidden: "failed",
  refused: "failed",
};

type Props<Row extends PlannedRow> = {
  query: ReturnType<typeof useChangePlan<Row>>;
  /** What is in the place of a plan that has not been asked for. */
  hint?: string;
  fateOf: (row: Row) => ChangeFate;
  /** What would happen, where nothing refuses it. */
  would: (row: Row) => React.ReactNode;
  /** Columns between the host and what would happen. */
  columns?: Column<Row>[];
  exported: readonly (keyof Row & string)[];
  /** Further sums beside those of the fates. */
  sums?: React.ReactNode;
};

/** What a change would do, host by host: sums, and a table of all of them. */
export function ChangePlanView<Row extends PlannedRow>(props: Props<Row>) {
  const { query, hint, fateOf, columns: more } = props;
  const { plans: text, operate } = useMessages();
  const number = useNumbers();
  const columns = usePlanColumns(props, more);
  const counts = useMemo(() => {
    const sums = { now: 0, later: 0, same: 0, forbidden: 0, refused: 0 };
    for (const row of query.data ?? []) sums[fateOf(row)] += 1;
    return sums;
  }, [query.data, fateOf]);
  if (query.error) return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  if (!query.data) {
    if (hint) return <p className="muted change-plan-hint">{hint}</p>;
    return (
      <div className="change-plan">
        <p className="muted change-plan-hint">{operate.planning}</p>
        <Skeleton lines={5} />
      </div>
    );
  }
  const rows = query.data;
  return (
    <section className={`change-plan${query.isFetching ? " is-planning" : ""}`} aria-label={text.title}>
      <div className="row wrap">
        {changeFates
          .filter((fate) => counts[fate] > 0)
          .map((fate) => (
            <Badge key={fate} tone={tones[fate]}>
              {text.sum[fate](number(counts[fate]))}
            </Badge>
          ))}
        {props.sums}
        <span className="plan-tools">
          <span className="muted">
            {operate.plannedAt} <TimeMs at={query.dataUpdatedAt} />
          </span>
          <ExportButton name="plan" rows={rows} columns={props.exported} />
          <Button
            size="small"
            type="text"
            icon={<ReloadOutlined />}
            aria-label={operate.planAgain}
            title={operate.planAgain}
            loading={query.isFetching}
            onClick={() => void query.refetch()}
          />
        </span>
      </div>
      {/* Its height is that of its rows, up to ten. */}
      <div className="change-plan-table" style={{ height: 36 + 32 * Math.min(Math.max(rows.length, 1), 10) }}>
        <DataTable
          label={text.title}
          columns={columns}
          rows={rows}
          rowKey={(row) => row.host}
          isLoading={false}
          rowClass={(row) => (fateOf(row) === "now" ? "" : "is-away")}
          empty={null}
        />
      </div>
    </section>
  );
}

function usePlanColumns<Row extends PlannedRow>(props: Props<Row>, more: Column<Row>[] = []): Column<Row>[] {
  const { plans: text, operate, common, terms } = useMessages();
  const told = (row: Row) => {
    const fate = props.fateOf(row);
    if (row.refused) {
      const why =
        fate === "forbidden"
          ? `${operate.fate.forbidden}: ${terms.told(row.refused)}`
          : terms.told(row.refused);
      return (
        <span className={`tone-${tones[fate]}`} title={why}>
          {why}
        </span>
      );
    }
    if (fate === "same") return <span className="muted">{text.unchanged}</span>;
    return (
      <>
        {props.would(row)}
        {fate === "later" && <span className="tone-warning"> · {text.later}</span>}
      </>
    );
  };
  return [
    {
      key: "host",
      title: common.host,
      width: "minmax(118px, 1fr)",
      render: (row) => (
        <Link to={hostPath(row.host)} className="mono">
          {row.host}
        </Link>
      ),
    },
    ...more,
    { key: "would", title: text.would, width: "minmax(150px, 2.4fr)", render: told },
  ];
}

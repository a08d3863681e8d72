import { Link } from "react-router";
import type { Pool } from "@/api/server";
import { useMessages } from "@/settings/context";
import { formatPercent } from "@/ui/format";
import { processPath } from "@/ui/paths";
import { SimpleTable } from "@/ui/simple-table";
import type { Ranked } from "./ranking";

export function RankingTable({ ranked, weight }: { ranked: Ranked[]; weight: Pool["cpu_weight"] }) {
  const { pools: text } = useMessages();
  const rows = ranked.map((member, index) => ({ ...member, rank: index + 1 }));
  return (
    <SimpleTable
      label={text.ranking}
      rows={rows}
      rowKey={(row) => row.process}
      columns={[
        { key: "rank", title: text.rank.rank, isNumber: true, render: (row) => row.rank },
        {
          key: "process",
          title: text.rank.process,
          render: (row) => (
            <>
              <Link to={processPath(row.process)}>{row.process}</Link>
              {row.rank === 1 && row.score > 0 && <span className="muted"> · {text.next}</span>}
            </>
          ),
        },
        { key: "usage", title: text.rank.usage, isNumber: true, render: (row) => formatPercent(row.usage) },
        {
          key: "limit",
          title: text.rank.limit,
          isNumber: true,
          isMinor: true,
          render: (row) => (row.limit === null ? "–" : formatPercent(row.limit)),
        },
        {
          key: "score",
          title: text.rank.score,
          isNumber: true,
          render: (row) => (weight === "usage" ? formatPercent(row.score) : row.score.toFixed(3)),
        },
      ]}
    />
  );
}

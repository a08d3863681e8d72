import { Link } from "react-router";
import { useMessages } from "@/settings/context";
import { formatPercent } from "@/ui/format";
import { processPath } from "@/ui/paths";
import { SimpleTable } from "@/ui/simple-table";
import { PoolKey } from "./pool-bar";
import type { Ranked } from "./ranking";

/** The formula with the figures of a member filled in. */
export function formulaOf({ usage, divisor, score }: Ranked): string {
  if (divisor === null) return formatPercent(score);
  if (usage === 0) return "0";
  return `${formatPercent(usage)} ÷ ${formatPercent(divisor)} = ${score.toFixed(3)}`;
}

/** On a phone without the figures, which stand in the other columns and above the table. */
function Score({ row }: { row: Ranked }) {
  const [result = "", figures] = formulaOf(row).split(" = ").reverse();
  return (
    <>
      {figures && <span className="pool-figures">{`${figures} = `}</span>}
      {result}
    </>
  );
}

export function RankingTable({ ranked }: { ranked: Ranked[] }) {
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
              {row.usage > 0 && <PoolKey index={row.rank - 1} />}
              <Link to={processPath(row.process)}>{row.process}</Link>
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
          render: (row) => <Score row={row} />,
        },
      ]}
    />
  );
}

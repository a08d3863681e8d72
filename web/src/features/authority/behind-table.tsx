import { Link } from "react-router";
import type { Authority } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { type Column, DataTable } from "@/ui/data-table";
import { hostPath } from "@/ui/paths";

type Row = Authority["behind"][number];

const ROW_PX = 32;
const HEAD_PX = 36;
const ROWS_SHOWN = 12;

/** Agents and relays that the next step would cut off, and why. */
export function BehindTable({ rows }: { rows: Row[] }) {
  const { authority: text, common } = useMessages();
  const { behindColumn: column } = text;
  const yes = (is: boolean) => (is ? common.yes : common.no);
  const columns: Column<Row>[] = [
    {
      key: "who",
      title: column.who,
      width: "minmax(130px, 1.4fr)",
      render: ({ host, relay }) =>
        host ? (
          <Link to={hostPath(host)} className="mono">
            {host}
          </Link>
        ) : (
          <Link to="/relays">{text.relay(relay ?? "")}</Link>
        ),
    },
    { key: "why", title: column.why, width: "minmax(120px, 1.6fr)", render: ({ why }) => text.why[why] },
    {
      key: "version",
      title: column.version,
      width: "110px",
      from: 460,
      render: ({ version }) => version || common.unknown,
    },
    {
      key: "trusts",
      title: column.trusts,
      width: "110px",
      from: 620,
      render: ({ trusts_successor }) => yes(trusts_successor),
    },
    {
      key: "certificate",
      title: column.certificate,
      width: "110px",
      from: 620,
      render: ({ has_new_certificate }) => yes(has_new_certificate),
    },
  ];
  return (
    <div
      className="authority-behind"
      style={{ height: HEAD_PX + ROW_PX * Math.min(rows.length, ROWS_SHOWN) }}
    >
      <DataTable
        label={column.who}
        columns={columns}
        rows={rows}
        rowKey={({ host, relay }) => host ?? relay ?? ""}
        isLoading={false}
        empty={null}
      />
    </div>
  );
}

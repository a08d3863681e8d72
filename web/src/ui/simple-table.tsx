import type { ReactNode } from "react";
import { Empty } from "./states";
import "./simple-table.css";

export type SimpleColumn<Row> = {
  key: string;
  title: string;
  isNumber?: boolean;
  /** Not shown on a phone. */
  isMinor?: boolean;
  render: (row: Row) => ReactNode;
};

type Props<Row> = {
  label: string;
  columns: SimpleColumn<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  empty?: string;
};

/** A plain table for lists that are never long. */
export function SimpleTable<Row>({ label, columns, rows, rowKey, empty }: Props<Row>) {
  if (rows.length === 0 && empty) return <Empty title={empty} />;
  const className = (column: SimpleColumn<Row>) =>
    `${column.isNumber ? "right" : ""}${column.isMinor ? " is-minor" : ""}`.trim();
  return (
    <div className="simple-table">
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.key} scope="col" className={className(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)}>
              {columns.map((column) => (
                <td key={column.key} className={className(column)}>
                  {column.render(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

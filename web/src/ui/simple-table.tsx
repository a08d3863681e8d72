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
  /** What can be done with a row: in a last column of their own. */
  actions?: (row: Row) => ReactNode;
};

/** A plain table for lists that are never long. */
export function SimpleTable<Row>({ label, columns: given, rows, rowKey, empty, actions }: Props<Row>) {
  if (rows.length === 0 && empty) return <Empty title={empty} />;
  const columns = actions
    ? [...given, { key: "actions", title: "", isNumber: true, isMinor: false, render: actions }]
    : given;
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

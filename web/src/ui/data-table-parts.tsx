import { type MouseEvent, memo } from "react";
import { useMessages } from "@/settings/context";
import type { Column } from "./data-table";

type HeaderProps<Row> = { column: Column<Row>; sort?: { by: string; onSort: (by: string) => void } };

export function HeaderCell<Row>({ column, sort }: HeaderProps<Row>) {
  const { common } = useMessages();
  const by = column.sort;
  const isSorted = sort !== undefined && by === sort.by;
  const className = column.isNumber ? "cell cell-number" : "cell";
  if (!by || !sort) {
    return (
      <span role="columnheader" className={className}>
        <span className="truncate">{column.title}</span>
      </span>
    );
  }
  return (
    <span role="columnheader" className={className} aria-sort={isSorted ? "other" : "none"}>
      <button
        type="button"
        className="plain-button sort-button truncate"
        title={common.sortBy(column.title)}
        onClick={() => sort.onSort(by)}
      >
        {column.title}
        <span aria-hidden="true">{isSorted ? (by === "name" ? " ↑" : " ↓") : ""}</span>
      </button>
    </span>
  );
}

export type RowActions<Row> = {
  open: (row: Row) => void;
  toggle: (row: Row) => void;
  activate: (index: number) => void;
};

type RowProps<Row> = {
  row: Row;
  index: number;
  top: number;
  columns: Column<Row>[];
  template: string;
  isActive: boolean;
  isSelected?: boolean;
  isLink: boolean;
  canSelect: boolean;
  className: string;
  actions: RowActions<Row>;
};

function PlainRow<Row>(props: RowProps<Row>) {
  const { row, index, columns, isActive, isSelected, isLink, actions } = props;
  const { common } = useMessages();
  const click = (event: MouseEvent) => {
    actions.activate(index);
    const target = event.target as HTMLElement;
    if (target.closest("a, button, input, label") || window.getSelection()?.toString()) return;
    actions.open(row);
  };
  const state = `${isActive ? " is-active" : ""}${isSelected ? " is-selected" : ""}${isLink ? " is-link" : ""}`;
  return (
    <div
      role="row"
      aria-rowindex={index + 1}
      className={`table-row ${props.className}${state}`}
      style={{ transform: `translateY(${props.top}px)`, gridTemplateColumns: props.template }}
      onClick={click}
    >
      {props.canSelect && (
        <span role="cell" className="cell cell-check">
          <input
            type="checkbox"
            aria-label={common.select}
            checked={isSelected ?? false}
            onChange={() => actions.toggle(row)}
          />
        </span>
      )}
      {columns.map((column) => (
        <span role="cell" key={column.key} className={column.isNumber ? "cell cell-number" : "cell"}>
          <span className="truncate cell-content">{column.render(row)}</span>
        </span>
      ))}
    </div>
  );
}

export const DataRow = memo(PlainRow) as typeof PlainRow;

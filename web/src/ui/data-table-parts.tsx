import type { MouseEvent } from "react";
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

type RowProps<Row> = {
  row: Row;
  index: number;
  top: number;
  columns: Column<Row>[];
  template: string;
  isActive: boolean;
  isSelected?: boolean;
  className: string;
  onOpen?: (row: Row) => void;
  onActivate: (index: number) => void;
  onToggle?: (row: Row) => void;
};

export function DataRow<Row>(props: RowProps<Row>) {
  const { row, index, columns, isActive, isSelected, onOpen, onToggle } = props;
  const { common } = useMessages();
  const click = (event: MouseEvent) => {
    props.onActivate(index);
    const target = event.target as HTMLElement;
    if (target.closest("a, button, input, label") || window.getSelection()?.toString()) return;
    onOpen?.(row);
  };
  const state = `${isActive ? " is-active" : ""}${isSelected ? " is-selected" : ""}${onOpen ? " is-link" : ""}`;
  return (
    <div
      role="row"
      aria-rowindex={index + 1}
      className={`table-row ${props.className}${state}`}
      style={{ transform: `translateY(${props.top}px)`, gridTemplateColumns: props.template }}
      onClick={click}
    >
      {onToggle && (
        <span role="cell" className="cell cell-check">
          <input
            type="checkbox"
            aria-label={common.select}
            checked={isSelected ?? false}
            onChange={() => onToggle(row)}
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

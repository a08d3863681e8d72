import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useMessages } from "@/settings/context";
import { DataRow, HeaderCell, type RowActions } from "./data-table-parts";
import { Skeleton } from "./states";
import { useRowKeys } from "./use-row-keys";
import { useWidth } from "./use-width";
import "./data-table.css";

export type Column<Row> = {
  key: string;
  title: string;
  /** As in grid-template-columns. */
  width: string;
  isNumber?: boolean;
  /** The column is hidden where the table is narrower than this. */
  from?: number;
  /** The value of `sort` in the address; the column can be sorted by. */
  sort?: string;
  render: (row: Row) => ReactNode;
};

export type Selection = { selected: ReadonlySet<string>; onChange: (next: Set<string>) => void };

export type DataTableProps<Row> = {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
  isLoading: boolean;
  /** The rows are of an earlier question, until the answer to this one is there. */
  isOutdated?: boolean;
  empty: ReactNode;
  rowClass?: (row: Row) => string;
  onOpen?: (row: Row) => void;
  selection?: Selection;
  sort?: { by: string; onSort: (by: string) => void };
  onVisible?: (first: number, last: number) => void;
  onEnd?: () => void;
  isFetchingMore?: boolean;
  /** Takes keys (j, k, x, Enter) without being focused: for the one table of a page. */
  isMain?: boolean;
};

const ROW_PX = 32;
/** More rows are asked for when fewer than this are below the view, or half of a short list. */
const AHEAD_ROWS = 200;

/** A table of any length: only the rows in view are in the document. */
export function DataTable<Row>(props: DataTableProps<Row>) {
  const { label, rows, rowKey, selection, onVisible, onEnd, sort } = props;
  const { common } = useMessages();
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const [active, setActive] = useState(-1);
  const columns = useMemo(
    () => props.columns.filter((column) => !column.from || width === 0 || width >= column.from),
    [props.columns, width],
  );
  const template = `${selection ? "36px " : ""}${columns.map((column) => column.width).join(" ")}`;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    initialRect: { width: 1000, height: 600 },
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;

  useEffect(() => onVisible?.(first, last), [onVisible, first, last]);
  useEffect(() => {
    if (rows.length > 0 && last >= rows.length - Math.min(AHEAD_ROWS, rows.length / 2)) onEnd?.();
  }, [last, rows.length, onEnd]);

  const toggle = (row: Row) => {
    if (!selection) return;
    const next = new Set(selection.selected);
    const key = rowKey(row);
    if (!next.delete(key)) next.add(key);
    selection.onChange(next);
  };
  const activate = (index: number) => {
    setActive(index);
    virtual.scrollToIndex(index);
  };
  const onKeys = useRowKeys({
    rows,
    active,
    activate,
    onOpen: props.onOpen,
    toggle,
    isMain: props.isMain ?? false,
  });

  // Rows that stay in view are not rendered again, so what they call must stay the same.
  const latest = useRef({ open: props.onOpen, toggle });
  latest.current = { open: props.onOpen, toggle };
  const actions = useMemo<RowActions<Row>>(
    () => ({
      open: (row) => latest.current.open?.(row),
      toggle: (row) => latest.current.toggle(row),
      activate: setActive,
    }),
    [],
  );

  const allSelected =
    selection !== undefined &&
    rows.length > 0 &&
    selection.selected.size >= rows.length &&
    rows.every((row) => selection.selected.has(rowKey(row)));

  return (
    <div
      className={props.isOutdated ? "table is-outdated" : "table"}
      aria-busy={props.isOutdated}
      ref={scroller}
      onKeyDown={onKeys}
      role="table"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
      tabIndex={0}
      aria-label={label}
      aria-rowcount={rows.length}
    >
      <div className="table-head" role="row" style={{ gridTemplateColumns: template }}>
        {selection && (
          <span role="columnheader" className="cell cell-check">
            <input
              type="checkbox"
              aria-label={common.selectAll}
              checked={allSelected}
              onChange={() => selection.onChange(allSelected ? new Set() : new Set(rows.map(rowKey)))}
            />
          </span>
        )}
        {columns.map((column) => (
          <HeaderCell key={column.key} column={column} sort={sort} />
        ))}
      </div>
      {props.isLoading && rows.length === 0 && <Skeleton lines={12} />}
      {!props.isLoading && rows.length === 0 && (
        <div role="rowgroup">
          <div role="row">
            <div role="cell">{props.empty}</div>
          </div>
        </div>
      )}
      <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const row = rows[item.index] as Row;
          return (
            <DataRow
              key={rowKey(row)}
              row={row}
              index={item.index}
              top={item.start}
              columns={columns}
              template={template}
              isActive={item.index === active}
              isSelected={selection?.selected.has(rowKey(row))}
              className={props.rowClass?.(row) ?? ""}
              isLink={props.onOpen !== undefined}
              canSelect={selection !== undefined}
              actions={actions}
            />
          );
        })}
      </div>
      {props.isFetchingMore && <div className="table-more muted">{common.loadingMore}</div>}
    </div>
  );
}

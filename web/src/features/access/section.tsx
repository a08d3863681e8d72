import type { UseQueryResult } from "@tanstack/react-query";
import { Button } from "antd";
import type { ReactNode } from "react";
import { ExportButton } from "@/ui/export";
import { Guarded } from "@/ui/rights";
import { Failure, Skeleton } from "@/ui/states";

type Props<Row extends object> = {
  query: UseQueryResult<Row[]>;
  /** The file and its columns, for who saves the list. */
  saved: {
    name: string;
    columns: readonly (keyof Row & string)[];
    /** Where the list is narrowed, so is the file. */
    isWanted?: (row: Row) => boolean;
  };
  /** Narrows the list; on the row of the button. */
  filter?: ReactNode;
  action: { label: string; onClick: () => void };
  children: (rows: Row[]) => ReactNode;
};

/** A list with the button that adds to it, and the states before it is there. */
export function Section<Row extends object>({ query, saved, filter, action, children }: Props<Row>) {
  const rows = query.data ?? [];
  return (
    <div className="stack">
      <div className="row">
        {filter}
        <span className="grow" />
        <ExportButton
          name={saved.name}
          rows={saved.isWanted ? rows.filter(saved.isWanted) : rows}
          columns={saved.columns}
        />
        <Guarded need="admin">
          {(isAllowed) => (
            <Button type="primary" disabled={!isAllowed} onClick={action.onClick}>
              {action.label}
            </Button>
          )}
        </Guarded>
      </div>
      <div className="panel">
        {query.isPending && <Skeleton />}
        {query.error && query.data === undefined && (
          <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
        )}
        {query.data !== undefined && children(query.data)}
      </div>
    </div>
  );
}

import type { UseQueryResult } from "@tanstack/react-query";
import { Button } from "antd";
import type { ReactNode } from "react";
import { Failure, Skeleton } from "@/ui/states";

type Props<Data> = {
  query: UseQueryResult<Data>;
  /** Narrows the list; on the row of the button. */
  filter?: ReactNode;
  action?: { label: string; onClick: () => void };
  children: (data: Data) => ReactNode;
};

/** A list with the button that adds to it, and the states before it is there. */
export function Section<Data>({ query, filter, action, children }: Props<Data>) {
  return (
    <div className="stack">
      {action && (
        <div className="row">
          {filter}
          <span className="grow" />
          <Button type="primary" onClick={action.onClick}>
            {action.label}
          </Button>
        </div>
      )}
      <div className="panel">
        {query.isPending && <Skeleton />}
        {query.error && query.data === undefined && (
          <Failure error={query.error} onRetry={() => void query.refetch()} />
        )}
        {query.data !== undefined && children(query.data)}
      </div>
    </div>
  );
}

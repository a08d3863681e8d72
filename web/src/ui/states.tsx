import { Button } from "antd";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { OperationClass } from "@/api/access";
import { ApiError } from "@/api/client";
import { useMessages } from "@/settings/context";
import { CopyText } from "./copy";
import "./states.css";

/** Nothing to show: says why, and what the next step is. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state">
      <p className="state-title">{title}</p>
      {children && <div className="state-text">{children}</div>}
    </div>
  );
}

type FailureProps = {
  error: unknown;
  onRetry?: () => void;
  /** The right that the data takes. */
  need?: OperationClass;
};

/** An error in the place of the data it replaces, with the request id for whoever has to look it up. */
export function Failure({ error, onRetry, need = "read" }: FailureProps) {
  const { common, states, terms } = useMessages();
  if (error instanceof ApiError && error.status === 403) {
    return (
      <Empty title={states.forbiddenTitle}>
        <p>{error.message}</p>
        <p>{states.forbidden(terms.right[need])}</p>
      </Empty>
    );
  }
  if (error instanceof ApiError && error.status === 404) return <NotFound />;
  const message = error instanceof Error ? error.message : String(error);
  const isAway = error instanceof ApiError && error.status === 0;
  return (
    <div className="state" role="alert">
      <p className="state-title">{states.errorTitle}</p>
      <p className="state-text">{isAway ? states.unreachable : message}</p>
      {error instanceof ApiError && error.requestId && (
        <p className="state-text">
          {common.requestId}: <CopyText text={error.requestId} />
        </p>
      )}
      {onRetry && <Button onClick={onRetry}>{common.retry}</Button>}
    </div>
  );
}

export function NotFound() {
  const { states } = useMessages();
  return (
    <Empty title={states.notFoundTitle}>
      <p>{states.notFound}</p>
      <Link to="/">{states.toOverview}</Link>
    </Empty>
  );
}

/** Grey lines of the final height, so that nothing moves when the data comes. */
export function Skeleton({ lines = 6, height = 20 }: { lines?: number; height?: number }) {
  const { common } = useMessages();
  return (
    <div className="skeleton" role="status" aria-label={common.loading}>
      {Array.from({ length: lines }, (_, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines have nothing else
        <span key={index} style={{ height, width: `${92 - ((index * 17) % 40)}%` }} />
      ))}
    </div>
  );
}

import { type ReactNode, useEffect } from "react";
import { Link } from "react-router";
import { useMessages } from "@/settings/context";
import "./filters.css";
import "./page.css";

export type Crumb = { label: string; to: string };

type Props = {
  title: string;
  crumbs?: Crumb[];
  /** Beside the title: a phase, an id to copy. */
  beside?: ReactNode;
  actions?: ReactNode;
  /** Fills the height of the window; its content scrolls inside. */
  isFilled?: boolean;
  children: ReactNode;
};

export function Page({ title, crumbs = [], beside, actions, isFilled, children }: Props) {
  const { common } = useMessages();
  useEffect(() => {
    document.title = `${title} · ${common.product}`;
  }, [title, common.product]);
  return (
    <div className={isFilled ? "page page-filled" : "page"}>
      <header className="page-head">
        <div className="page-title">
          {crumbs.length > 0 && (
            <nav className="crumbs" aria-label="Breadcrumb">
              {crumbs.map((crumb) => (
                <span key={crumb.to}>
                  <Link to={crumb.to}>{crumb.label}</Link>
                  <span aria-hidden="true"> / </span>
                </span>
              ))}
            </nav>
          )}
          <div className="row">
            <h1 className="truncate" title={title}>
              {title}
            </h1>
            {beside}
          </div>
        </div>
        {actions && <div className="page-actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

export function Panel({ title, extra, children }: { title: string; extra?: ReactNode; children: ReactNode }) {
  return (
    <section className="panel" aria-label={title}>
      <div className="panel-head">
        <h2 className="grow truncate">{title}</h2>
        {extra}
      </div>
      {children}
    </section>
  );
}

type FactsProps = {
  items: [string, ReactNode][];
  /** On a phone, each has a line of its own. */
  isWide?: boolean;
};

/** Names and values side by side. */
export function Facts({ items, isWide }: FactsProps) {
  return (
    <dl className={isWide ? "facts is-wide" : "facts"}>
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

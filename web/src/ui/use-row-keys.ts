import { type KeyboardEvent, useEffect } from "react";

type Options<Row> = {
  rows: Row[];
  active: number;
  activate: (index: number) => void;
  onOpen?: (row: Row) => void;
  toggle: (row: Row) => void;
  isMain: boolean;
};

type Key = Pick<KeyboardEvent, "key" | "preventDefault" | "ctrlKey" | "metaKey" | "altKey">;

export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.matches("textarea, select, [contenteditable=true], input:not([type=checkbox])");
}

/** Moves through rows with j and k (or the arrows), selects with x, opens with Enter. */
export function useRowKeys<Row>({ rows, active, activate, onOpen, toggle, isMain }: Options<Row>) {
  const handle = (event: Key) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = rows[active];
    if (event.key === "j" || event.key === "ArrowDown") activate(Math.min(rows.length - 1, active + 1));
    else if (event.key === "k" || event.key === "ArrowUp") activate(Math.max(0, active - 1));
    else if (event.key === "x" && row !== undefined) toggle(row);
    else if (event.key === "Enter" && row !== undefined && onOpen) onOpen(row);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    if (!isMain) return;
    const listen = (event: globalThis.KeyboardEvent) => {
      const target = event.target;
      const isFree = target === document.body || (target instanceof HTMLElement && target.closest("main"));
      const isControl = target instanceof HTMLElement && target.matches("a, button");
      const isArrow = event.key.startsWith("Arrow");
      if (!isFree || isTyping(target) || event.defaultPrevented || isArrow) return;
      if (isControl && event.key === "Enter") return;
      handle(event);
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  });
  return (event: KeyboardEvent) => {
    if (isMain && !event.key.startsWith("Arrow")) return;
    if (isTyping(event.target)) return;
    if (event.key === "Enter" && (event.target as HTMLElement).matches("a, button")) return;
    handle(event);
  };
}

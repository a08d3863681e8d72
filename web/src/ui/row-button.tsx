import { Button } from "antd";
import type { ReactNode } from "react";

type Props = { isDangerous?: boolean; onClick: () => void; children: ReactNode };

/** What can be done with one row of a table. */
export function RowButton({ isDangerous, onClick, children }: Props) {
  return (
    <Button size="small" type={isDangerous ? "text" : "link"} danger={isDangerous} onClick={onClick}>
      {children}
    </Button>
  );
}

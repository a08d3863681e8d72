import { type CSSProperties, useMemo } from "react";
import { useMessages } from "@/settings/context";
import { type DiffLine, jsonLines, lineDiff } from "./line-diff";
import { Empty } from "./states";
import "./diff-view.css";

type Props = { left: unknown; right: unknown; leftTitle: string; rightTitle: string };

/** Two values side by side; what differs is marked by colour and sign. */
export function DiffView({ left, right, leftTitle, rightTitle }: Props) {
  const { process } = useMessages();
  const lines = useMemo(() => lineDiff(jsonLines(left), jsonLines(right)), [left, right]);
  if (lines.every((line) => line.left === line.right)) return <Empty title={process.spec.noDifference} />;
  return (
    <div className="diff" style={{ "--rows": lines.length + 1 } as CSSProperties}>
      <Side title={leftTitle} lines={lines} side="left" />
      <Side title={rightTitle} lines={lines} side="right" />
    </div>
  );
}

function Side({ title, lines, side }: { title: string; lines: DiffLine[]; side: "left" | "right" }) {
  const sign = side === "left" ? "−" : "+";
  return (
    <section className="diff-side" aria-label={title}>
      <div className="diff-title">{title}</div>
      <pre>
        {lines.map((line, index) => {
          const isSame = line.left === line.right;
          const text = line[side];
          const state = isSame
            ? ""
            : text === null
              ? " is-absent"
              : side === "left"
                ? " is-removed"
                : " is-added";
          return (
            // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other identity
            <span key={index} className={`diff-line${state}`}>
              {isSame || text === null ? " " : sign} {text ?? ""}
              {"\n"}
            </span>
          );
        })}
      </pre>
    </section>
  );
}

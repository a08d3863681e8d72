import { type MouseEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { useSettings } from "@/settings/context";
import { useWidth } from "./use-width";
import "./cell-grid.css";

export type CellTone = "running" | "changing" | "failed" | "warning" | "idle" | "empty";

type Props = {
  label: string;
  /** One tone for each cell. */
  tones: readonly CellTone[];
  cellPx?: number;
  describe: (index: number) => ReactNode;
  onOpen?: (index: number) => void;
  onHover?: (index: number | null) => void;
};

const HEIGHT_WANTED_PX = 260;

/** The largest cell with which all of them fit into the given room. */
export function cellSize(count: number, width: number, height = HEIGHT_WANTED_PX): number {
  if (count === 0 || width === 0) return 14;
  return Math.max(3, Math.min(16, Math.floor(Math.sqrt((width * height) / count))));
}

/** One cell for each of thousands of things, drawn on a canvas; the one under the pointer is described. */
export function CellGrid({ label, tones, cellPx, describe, onOpen, onHover }: Props) {
  const { isDark } = useSettings();
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(box);
  const [hover, setHover] = useState<{ index: number; left: number; top: number } | null>(null);
  const cell = cellPx ?? cellSize(tones.length, width);
  const perRow = Math.max(1, Math.floor(width / cell));
  const rows = Math.ceil(tones.length / perRow);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme changes the colours that are read
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, tones, cell, perRow);
  }, [tones, cell, perRow, width, isDark]);

  const indexAt = (event: MouseEvent<HTMLCanvasElement>) => {
    const { offsetX, offsetY } = event.nativeEvent;
    const column = Math.floor(offsetX / cell);
    const index = Math.floor(offsetY / cell) * perRow + column;
    return column < perRow && index < tones.length ? index : -1;
  };
  const move = (event: MouseEvent<HTMLCanvasElement>) => {
    const index = indexAt(event);
    const { offsetX, offsetY } = event.nativeEvent;
    onHover?.(index < 0 ? null : index);
    setHover(
      index < 0 ? null : { index, left: Math.min(offsetX + 12, Math.max(0, width - 280)), top: offsetY + 16 },
    );
  };
  return (
    <div className="cell-grid" ref={box} style={{ minHeight: rows * cell }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        className={onOpen ? "is-link" : ""}
        onMouseMove={move}
        onMouseLeave={() => {
          setHover(null);
          onHover?.(null);
        }}
        onClick={(event) => {
          const index = indexAt(event);
          if (index >= 0) onOpen?.(index);
        }}
      />
      {hover && (
        <span
          className="cell-outline"
          style={{
            left: (hover.index % perRow) * cell - 1,
            top: Math.floor(hover.index / perRow) * cell - 1,
            width: cell,
            height: cell,
          }}
        />
      )}
      {hover && (
        <div className="cell-tip" style={{ left: hover.left, top: hover.top }}>
          {describe(hover.index)}
        </div>
      )}
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, tones: readonly CellTone[], cell: number, perRow: number) {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = window.devicePixelRatio || 1;
  const width = perRow * cell;
  const height = Math.ceil(tones.length / perRow) * cell;
  canvas.width = Math.ceil(width * ratio);
  canvas.height = Math.ceil(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(canvas);
  const colours = new Map<CellTone, string>();
  for (const tone of ["running", "changing", "failed", "warning", "idle", "empty"] as const) {
    colours.set(tone, style.getPropertyValue(`--cell-${tone}`));
  }
  tones.forEach((tone, index) => {
    const left = (index % perRow) * cell;
    const top = Math.floor(index / perRow) * cell;
    const { x, y, width: w, height: h, hole } = shapeOf(tone, cell);
    context.fillStyle = colours.get(tone) ?? "";
    context.fillRect(left + x, top + y, w, h);
    if (hole > 0) context.clearRect(left + (cell - hole) / 2, top + (cell - hole) / 2, hole, hole);
  });
}

type Shape = { x: number; y: number; width: number; height: number; hole: number };

/** Each tone has a shape of its own at every size, because colour alone would hide it from some. */
export function shapeOf(tone: CellTone, cell: number): Shape {
  const full = cell - (cell > 5 ? 1.5 : 0.75);
  const part = full * 0.6;
  const square = { x: 0, y: 0, width: full, height: full, hole: 0 };
  switch (tone) {
    case "failed": // larger than the others, with a hole where there is room for one
      return {
        x: 0,
        y: 0,
        width: cell,
        height: cell,
        hole: cell >= 4 ? Math.max(1, Math.round(cell / 4)) : 0,
      };
    case "warning": // the lower part
      return { ...square, y: full - part, height: part };
    case "changing": // the left part
      return { ...square, width: part };
    case "idle": // a small one in the middle
      return { x: (full - part) / 2, y: (full - part) / 2, width: part, height: part, hole: 0 };
    case "running":
    case "empty":
      return square;
  }
}

export function Legend({ items }: { items: [CellTone, string][] }) {
  return (
    <div className="legend">
      {items.map(([tone, text]) => (
        <span key={text}>
          <span
            className={`legend-cell is-${tone}`}
            style={{ background: `var(--cell-${tone})` }}
            aria-hidden="true"
          />
          {text}
        </span>
      ))}
    </div>
  );
}

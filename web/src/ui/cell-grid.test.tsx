import { createEvent, fireEvent, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { renderPage } from "../../test/render";
import { CellGrid, type CellTone, cellSize, shapeOf } from "./cell-grid";

afterEach(() => void vi.restoreAllMocks());

type Rect = [number, number, number, number];

/** A canvas that notes what is drawn on it. */
function countingCanvas() {
  const drawn: { colour: string; rect: Rect }[] = [];
  const holes: Rect[] = [];
  const context = {
    fillStyle: "",
    setTransform: () => undefined,
    fillRect: (...rect: Rect) => drawn.push({ colour: context.fillStyle, rect }),
    clearRect: (...rect: Rect) => holes.push(rect),
  };
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(context as never);
  return { drawn, holes };
}

function clickAt(x: number, y: number) {
  const canvas = screen.getByRole("img");
  const click = createEvent.click(canvas);
  Object.defineProperties(click, { offsetX: { value: x }, offsetY: { value: y } });
  fireEvent(canvas, click);
}

const tonesOf = (count: number, failed: number): CellTone[] =>
  Array.from({ length: count }, (_, index) => (index === failed ? "failed" : "running"));

for (const [count, cellPx, failed] of [
  [15_000, 6, 14_321],
  [30_000, undefined, 29_876],
] as const) {
  test(`${count} cells are drawn once each, the failed one has its shape, and a click finds it`, () => {
    const { drawn, holes } = countingCanvas();
    const opened: number[] = [];
    renderPage(
      <CellGrid
        label="cells"
        tones={tonesOf(count, failed)}
        cellPx={cellPx}
        describe={() => null}
        onOpen={(index) => opened.push(index)}
      />,
    );
    const cell = cellPx ?? cellSize(count, 1200);
    const perRow = Math.floor(1200 / cell);
    const [left, top] = [(failed % perRow) * cell, Math.floor(failed / perRow) * cell];

    expect(drawn).toHaveLength(count);
    expect(drawn[failed]?.rect).toEqual([left, top, cell, cell]);
    expect(drawn[0]?.rect[2]).toBeLessThan(cell);
    expect(holes).toHaveLength(cell >= 4 ? 1 : 0);
    clickAt(left + cell / 2, top + cell / 2);

    expect(opened).toEqual([failed]);
  });
}

test("each tone has a shape of its own, in the smallest cells too", () => {
  const tones: CellTone[] = ["running", "failed", "warning", "changing", "idle"];

  for (const cell of [3, 6, 14]) {
    const shapes = new Set(tones.map((tone) => JSON.stringify(shapeOf(tone, cell))));
    expect(shapes.size).toBe(tones.length);
  }
});

import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test, vi } from "vitest";
import { renderPage } from "../../test/render";
import { type Column, DataTable } from "./data-table";

type Row = { id: number };

const columns: Column<Row>[] = [{ key: "id", title: "Id", width: "1fr", render: (row) => `row ${row.id}` }];

function Table({ count, onOpen }: { count: number; onOpen?: (row: Row) => void }) {
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const rows = Array.from({ length: count }, (_, id) => ({ id }));
  return (
    <main>
      <p>{`${selected.size} selected`}</p>
      <DataTable
        label="rows"
        isMain
        columns={columns}
        rows={rows}
        rowKey={(row) => String(row.id)}
        isLoading={false}
        empty={<p>nothing here</p>}
        onOpen={onOpen}
        selection={{ selected, onChange: setSelected }}
      />
    </main>
  );
}

test("of 100,000 rows only those in view are in the document", () => {
  renderPage(<Table count={100_000} />);

  const table = screen.getByRole("table", { name: "rows" });
  expect(table.getAttribute("aria-rowcount")).toBe("100000");
  expect(within(table).getByText("row 0")).toBeTruthy();
  expect(within(table).getAllByRole("row").length).toBeLessThan(80);
});

test("j and x select a row, Enter opens it", async () => {
  const onOpen = vi.fn();
  renderPage(<Table count={5} onOpen={onOpen} />);

  await userEvent.keyboard("jjx{Enter}");

  expect(screen.getByText("1 selected")).toBeTruthy();
  expect(onOpen).toHaveBeenCalledWith({ id: 1 });
});

test("an empty list says so", () => {
  renderPage(<Table count={0} />);

  expect(screen.getByText("nothing here")).toBeTruthy();
});

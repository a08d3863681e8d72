import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test, vi } from "vitest";
import type { Process, ProcessFilter } from "@/api/processes";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { BulkBar } from "./bulk-bar";

const rowKey = (row: Process) => `${row.host} ${row.process}`;

test("all that match are selected, and how many is said before", async () => {
  fakeApi({
    "GET /api/v1/processes": () => ({ body: { processes: [{ host: "0:10.0.0.1", process: "web/a" }] } }),
  });
  const onChange = vi.fn();
  renderPage(
    <BulkBar selected={new Set(["x"])} filter={{}} matching={3104} onChange={onChange} rowKey={rowKey} />,
  );

  await userEvent.click(screen.getByRole("button", { name: "Select all 3,104 that match" }));

  await vi.waitFor(() => expect(onChange).toHaveBeenCalledWith(new Set(["0:10.0.0.1 web/a"])));
});

test("a selection that failed says so and leaves what was selected", async () => {
  fakeApi({
    "GET /api/v1/processes": () => ({
      status: 500,
      body: { error: { code: "internal", message: "too slow" } },
    }),
  });
  const onChange = vi.fn();
  renderPage(
    <BulkBar
      selected={new Set(["x"])}
      filter={{}}
      matching={undefined}
      onChange={onChange}
      rowKey={rowKey}
    />,
  );

  await userEvent.click(screen.getByRole("button", { name: "Select all that match" }));

  expect(await screen.findByText("too slow")).toBeTruthy();
  expect(onChange).not.toHaveBeenCalled();
});

test("all that match lead to the plan by their filter, so that a colleague sees the same", async () => {
  const rows = Array.from({ length: 60 }, (_, index) => ({ host: `0:10.0.0.${index}`, process: "web/a" }));
  fakeApi({ "GET /api/v1/processes": () => ({ body: { processes: rows } }) });
  const filter = { namespace: "web", phase: "failed" };
  const { router } = renderPage(<Selecting filter={filter} />);

  await userEvent.click(screen.getByRole("button", { name: "Select all that match" }));
  await screen.findByText("60 selected");
  await userEvent.click(screen.getByRole("button", { name: "Restart…" }));

  const query = new URLSearchParams(router.state.location.search);
  expect(query.get("match")).toBe("namespace=web&phase=failed");
});

test("a few picked rows stand in the address themselves", async () => {
  const { router } = renderPage(<Selecting filter={{}} />);

  await userEvent.click(screen.getByRole("button", { name: "Restart…" }));

  const query = new URLSearchParams(router.state.location.search);
  expect(query.getAll("target")).toEqual(["web/a 0:10.0.0.1"]);
});

function Selecting({ filter }: { filter: ProcessFilter }) {
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set(["web/a 0:10.0.0.1"]));
  return (
    <BulkBar
      selected={selected}
      filter={filter}
      matching={undefined}
      onChange={setSelected}
      rowKey={rowKey}
    />
  );
}

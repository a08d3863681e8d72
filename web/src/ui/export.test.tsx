import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { Page } from "@/api/paged";
import { renderPage } from "../../test/render";
import { ExportButton, toCsv } from "./export";

test("cells with commas, quotes and line breaks are quoted", () => {
  expect(toCsv(["a"], [['say "hi", now'], ["two\nlines"]])).toBe('a\r\n"say ""hi"", now"\r\n"two\nlines"');
});

test("a text that a spreadsheet would run is marked as text", () => {
  expect(toCsv(["a"], [["=cmd()"], ["-1"]])).toBe("a\r\n'=cmd()\r\n'-1");
});

test("numbers stay numbers", () => {
  expect(toCsv(["a"], [[-1], [null]])).toBe("a\r\n-1\r\n");
});

test("a list that is longer than what is loaded is exported whole", async () => {
  const saved: Blob[] = [];
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => undefined);
  URL.createObjectURL = (blob: Blob) => {
    saved.push(blob);
    return "blob:x";
  };
  const pages: Record<string, Page<{ id: number }>> = {
    first: { rows: [{ id: 1 }, { id: 2 }], next: "2" },
    "2": { rows: [{ id: 3 }], next: null },
  };
  const fetchPage = async (after: string | null) => pages[after ?? "first"] as Page<{ id: number }>;
  renderPage(<ExportButton name="things" rows={[{ id: 1 }]} columns={["id"]} fetchPage={fetchPage} />);

  await userEvent.click(screen.getByRole("button", { name: "Export" }));
  await userEvent.click(await screen.findByText("Export as CSV"));

  await waitFor(() => expect(saved).toHaveLength(1));
  expect(await saved[0]?.text()).toBe("id\r\n1\r\n2\r\n3");
});

import { fireEvent, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { renderPage } from "../../test/render";
import { TimeRange } from "./time-range";

test("the range stands in the address, in seconds of the viewer's zone", () => {
  const { router } = renderPage(<TimeRange />);

  fireEvent.change(screen.getByLabelText("From"), { target: { value: "2026-03-01T10:30" } });

  const since = new Date(2026, 2, 1, 10, 30).getTime() / 1000;
  expect(router.state.location.search).toBe(`?since=${since}`);
  expect(screen.getByLabelText<HTMLInputElement>("From").value).toBe("2026-03-01T10:30");
});

test("a time beyond the calendar in the address is its end", () => {
  renderPage(<TimeRange />, { path: "/audit?since=999999999999999" });

  expect(screen.getByLabelText<HTMLInputElement>("From").value).toMatch(/^9999-12-/);
});

test("a year that is being typed stays in the field and out of the address", () => {
  const since = new Date(2026, 2, 1, 10, 30).getTime() / 1000;
  const { router } = renderPage(<TimeRange />, { path: `/audit?since=${since}` });
  const from = screen.getByLabelText<HTMLInputElement>("From");

  fireEvent.change(from, { target: { value: "0002-03-01T10:30" } });
  expect(from.value).toBe("0002-03-01T10:30");
  expect(router.state.location.search).toBe(`?since=${since}`);

  fireEvent.blur(from);
  expect(from.value).toBe("2026-03-01T10:30");
  fireEvent.change(from, { target: { value: "" } });
  expect(router.state.location.search).toBe("");
});

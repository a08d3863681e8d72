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

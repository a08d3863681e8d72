import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { renderPage } from "../../test/render";
import { Time, TimeMs } from "./time";

const AT = Date.UTC(2026, 10, 17, 22, 30, 5);

test("a moment is relative, with the exact instant in the viewer's zone and in UTC on hover", () => {
  renderPage(<TimeMs at={AT} />);

  const time = screen.getByText(/ago|in /);
  const local = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" }).format(AT);
  expect(time.title).toBe(`${local}\n2026-11-17T22:30:05.000Z`);
  expect(time.getAttribute("datetime")).toBe("2026-11-17T22:30:05.000Z");
});

test("a clock time is the viewer's", () => {
  renderPage(<TimeMs at={AT} form="clock" />);

  const local = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", hourCycle: "h23" }).format(AT);
  expect(screen.getByText(local)).toBeTruthy();
});

test("nothing is never, and what no calendar has does not break the page", () => {
  renderPage(
    <>
      <Time at={0} />
      <TimeMs at={Number.MAX_SAFE_INTEGER * 10} />
    </>,
  );

  expect(screen.getByText("never")).toBeTruthy();
});

import { act, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { eventStream } from "@/api/stream";
import { renderPage } from "../../../test/render";
import { ConnectionBar } from "./connection-bar";

afterEach(() => {
  vi.restoreAllMocks();
  eventStream.state = { status: "connecting", heardAt: 0, awaySince: null };
});

test("a device that is offline names the time of the last word", () => {
  const heardAt = new Date(2026, 10, 17, 21, 4, 5).getTime();
  eventStream.state = { status: "open", heardAt, awaySince: null };
  vi.spyOn(navigator, "onLine", "get").mockReturnValue(false);

  act(() => void renderPage(<ConnectionBar />));

  expect(screen.getByRole("status").textContent).toContain("of 21:04:05");
});

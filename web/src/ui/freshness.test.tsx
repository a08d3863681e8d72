import { act, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { renderPage } from "../../test/render";
import { Freshness } from "./freshness";

beforeEach(() => void vi.useFakeTimers({ now: 1_700_000_000_000 }));
afterEach(() => void vi.useRealTimers());

const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));

test("figures say how old they are once they are older than expected", async () => {
  renderPage(<Freshness updatedAt={Date.now()} expectedMs={20_000} />);

  await pass(15_000);
  expect(screen.queryByText(/Updated/)).toBeNull();
  await pass(15_000);

  expect(screen.getByText("Updated 30 s ago")).toBeTruthy();
});

test("figures that never came have no age", async () => {
  renderPage(<Freshness updatedAt={0} expectedMs={20_000} />);

  await pass(60_000);

  expect(screen.queryByText(/Updated/)).toBeNull();
});

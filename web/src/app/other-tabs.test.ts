import { afterEach, expect, test, vi } from "vitest";
import { tellOtherTabs, watchOtherTabs } from "./other-tabs";

let stop: () => void = () => undefined;
afterEach(() => stop());

/** A browser tells the other tabs of what one has kept. */
function kept(key: string | undefined) {
  window.dispatchEvent(new StorageEvent("storage", { key: key ?? null }));
}

test("a sign-in or sign-out in one tab loads the others anew", () => {
  const reload = vi.fn();
  stop = watchOtherTabs(reload);
  kept("proctor.preferences");
  expect(reload).not.toHaveBeenCalled();

  const before = new Set(Object.keys(localStorage));
  tellOtherTabs();
  kept(Object.keys(localStorage).find((key) => !before.has(key)));

  expect(reload).toHaveBeenCalledTimes(1);
});

test("a page that the browser brings back from its history is loaded anew", () => {
  const reload = vi.fn();
  stop = watchOtherTabs(reload);
  const shown = (persisted: boolean) =>
    window.dispatchEvent(Object.assign(new Event("pageshow"), { persisted }));

  shown(false);
  expect(reload).not.toHaveBeenCalled();
  shown(true);

  expect(reload).toHaveBeenCalledTimes(1);
});

import { cleanup, configure } from "@testing-library/react";
import { afterEach, vi } from "vitest";

configure({ asyncUtilTimeout: 8000 });

afterEach(() => cleanup());

// What jsdom does not have and Ant Design or the tables ask for.
vi.stubGlobal(
  "matchMedia",
  vi.fn((media: string) => ({
    media,
    matches: false,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
    addListener: () => undefined,
    removeListener: () => undefined,
  })),
);
vi.stubGlobal(
  "ResizeObserver",
  class {
    constructor(private readonly call: ResizeObserverCallback) {}
    observe(target: Element) {
      const entry = { target, contentRect: { width: 1200, height: 700 } } as unknown as ResizeObserverEntry;
      this.call([entry], this as unknown as ResizeObserver);
    }
    unobserve() {}
    disconnect() {}
  },
);
Object.defineProperties(Element.prototype, {
  clientHeight: { get: () => 700 },
  clientWidth: { get: () => 1200 },
});
HTMLElement.prototype.scrollTo = () => undefined;
HTMLElement.prototype.scrollIntoView = () => undefined;

import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import type { Made } from "./enrol-page";
import { Joined } from "./joined";

const made = { token: { id: "t1", token: "PT1.x" }, fields: {} } as unknown as Made;
const token = { id: "t1", used: 1, uses: 5 };

test("who joined stands there with the token's use", async () => {
  const host = { agent: "a", host: "0:10.0.0.9", online: true, enrolled_at: 5 };
  fakeApi({
    "GET /api/v1/tokens": () => ({ body: { tokens: [token] } }),
    "GET /api/v1/hosts": (_, url) => ({
      body: { hosts: url.searchParams.get("token") === "t1" ? [host] : [] },
    }),
  });
  renderPage(<Joined made={made} />);

  expect(await screen.findByRole("link", { name: "0:10.0.0.9" })).toBeTruthy();
  expect(await screen.findByText("1 of 5 used")).toBeTruthy();
});

test("where that could not be loaded nobody is said to be waited for", async () => {
  fakeApi({
    "GET /api/v1/tokens": () => ({ body: { tokens: [token] } }),
    "GET /api/v1/hosts": () => ({ status: 500, body: { error: { code: "internal", message: "disk" } } }),
  });
  renderPage(<Joined made={made} />);

  expect(await screen.findByText("disk")).toBeTruthy();
  expect(screen.queryByText("Waiting for the first agent…")).toBeNull();
});

import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./webhooks-page";

const webhook = {
  id: "w-1",
  url: "https://alerts.example.com/proctor",
  format: "native",
  signed: true,
  created_at: 1,
  cursor: 12,
};

function server(answer: { status?: number; body: unknown }) {
  return fakeApi({
    "GET /api/v1/webhooks": () => ({ body: { webhooks: [webhook] } }),
    "POST /api/v1/webhooks/w-1/test": () => answer,
  });
}

test("a test shows the status, the time it took and what went wrong", async () => {
  const error = "the receiver answered with 502 Bad Gateway";
  server({ body: { delivered: false, status: 502, error, took_ms: 41 } });
  renderPage(<Component />, { path: "/webhooks" });

  await userEvent.click(await screen.findByRole("button", { name: "Send a test" }));

  expect(await screen.findByText("Not delivered")).toBeTruthy();
  expect(screen.getByText("HTTP 502 · 41 ms")).toBeTruthy();
  expect(screen.getByText(error)).toBeTruthy();
});

test("a test that the server refuses says why", async () => {
  server({ status: 429, body: { error: { code: "too_many_requests", message: "try again in a moment" } } });
  renderPage(<Component />, { path: "/webhooks" });

  await userEvent.click(await screen.findByRole("button", { name: "Send a test" }));

  expect(await screen.findByText("try again in a moment")).toBeTruthy();
});

test("who may not administer is told which right is missing", async () => {
  fakeApi({
    "GET /api/v1/webhooks": () => ({
      status: 403,
      body: { error: { code: "permission_denied", message: "no" } },
    }),
  });
  renderPage(<Component />, { path: "/webhooks", rights: { read: ["everything"] } });

  expect(await screen.findByText(/needs the right “Administer”/)).toBeTruthy();
  expect(screen.getByRole("button", { name: "Add a webhook" })).toHaveProperty("disabled", true);
});

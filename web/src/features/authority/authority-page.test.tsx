import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./authority-page";

const followers = { total: 12, trust_successor: 10, new_certificate: 0 };
const idle = {
  phase: "idle",
  fingerprint: "aa".repeat(32),
  agents: { ...followers, trust_successor: 0 },
  relays: { total: 0, trust_successor: 0, new_certificate: 0 },
  behind_total: 0,
  behind: [],
  open_tokens: 2,
};
const behind = {
  host: "0:10.0.0.9",
  why: "not_connected",
  version: "0.1.0",
  trusts_successor: false,
  has_new_certificate: false,
};
const prepared = {
  ...idle,
  phase: "prepared",
  successor_fingerprint: "bb".repeat(32),
  prepared_at: 1,
  agents: followers,
  behind_total: 2,
  behind: [behind, { ...behind, host: undefined, relay: "relay-a", why: "cannot_follow" }],
};

test("a rotation begins with its first step", async () => {
  const asked = fakeApi({
    "GET /api/v1/authority": () => ({ body: idle }),
    "POST /api/v1/authority/prepare": () => ({ body: prepared }),
  });
  renderPage(<Component />, { path: "/authority" });

  expect(await screen.findByText("In use")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Go back one step…" })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Prepare a rotation…" }));
  await userEvent.click(await screen.findByRole("button", { name: "Announce a successor" }));

  await waitFor(() => expect(asked.find(({ method }) => method === "POST")?.body).toEqual({ force: false }));
});

test("a step that cuts somebody off names them and has to be forced", async () => {
  const asked = fakeApi({
    "GET /api/v1/authority": () => ({ body: prepared }),
    "POST /api/v1/authority/switch": () => ({ body: { ...prepared, phase: "switched" } }),
  });
  renderPage(<Component />, { path: "/authority?do=switch" });

  const dialog = await screen.findByRole("dialog");
  expect(within(dialog).getByText("0:10.0.0.9")).toBeTruthy();
  expect(within(dialog).getByText("relay relay-a")).toBeTruthy();
  const yes = within(dialog).getByRole("button", { name: "Switch" });
  expect(yes).toHaveProperty("disabled", true);
  await userEvent.click(within(dialog).getByLabelText(/Cut off 2 agents and relays/));
  await userEvent.click(yes);

  await waitFor(() => expect(asked.find(({ method }) => method === "POST")?.body).toEqual({ force: true }));
});

test("what the server refuses is shown where it was asked for, and can be forced then", async () => {
  let isRefused = true;
  const asked = fakeApi({
    "GET /api/v1/authority": () => ({ body: { ...prepared, behind_total: 0, behind: [] } }),
    "POST /api/v1/authority/abort": () =>
      isRefused
        ? { status: 409, body: { error: { code: "conflict", message: "it would cut off host 0:10.0.0.9" } } }
        : { body: idle },
  });
  renderPage(<Component />, { path: "/authority?do=abort" });

  const dialog = await screen.findByRole("dialog");
  await userEvent.click(within(dialog).getByRole("button", { name: "Go back" }));
  expect(await within(dialog).findByText("it would cut off host 0:10.0.0.9")).toBeTruthy();
  isRefused = false;
  await userEvent.click(within(dialog).getByLabelText(/Go back all the same/));
  // While its icon goes away, the button is called by that as well.
  await userEvent.click(within(dialog).getByRole("button", { name: /Go back$/ }));

  const steps = () => asked.filter(({ method }) => method === "POST").map(({ body }) => body);
  await waitFor(() => expect(steps()).toEqual([{ force: false }, { force: true }]));
});

test("who may not administer is told which right is missing", async () => {
  fakeApi({
    "GET /api/v1/authority": () => ({
      status: 403,
      body: { error: { code: "permission_denied", message: "no" } },
    }),
  });
  renderPage(<Component />, { path: "/authority", rights: { read: ["everything"] } });

  expect(await screen.findByText(/needs the right “Administer”/)).toBeTruthy();
});

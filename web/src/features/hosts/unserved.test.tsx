import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./hosts-page";

const left = { host: "0:10.0.0.7", processes: 60, since: 1, key_fingerprint: "ef".repeat(32) };

function server(hosts: object[]) {
  return fakeApi({
    "GET /api/v1/hosts/unserved": () => ({ body: { hosts } }),
    "GET /api/v1/hosts": () => ({ body: { hosts: [] } }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
    "DELETE /api/v1/hosts/0%3A10.0.0.7": () => ({ body: { removed: "host 0:10.0.0.7" } }),
    "POST /api/v1/hosts/0%3A10.0.0.7/rejoin": () => ({ body: { host: left.host, rejoin_until: 9 } }),
  });
}

test("hosts that agents have left are listed with what is registered there", async () => {
  server([left, { ...left, host: "0:10.0.0.8", processes: 0, revoked_at: 3 }]);
  renderPage(<Component />, { path: "/hosts?view=unserved" });

  const row = await screen.findByRole("row", { name: /0:10\.0\.0\.7/ });
  expect(within(row).getByRole("link", { name: "60" }).getAttribute("href")).toContain("host=0%3A10.0.0.7");
  expect(within(row).getByText("its last key, or a token that names it")).toBeTruthy();
  const other = screen.getByRole("row", { name: /0:10\.0\.0\.8/ });
  expect(within(other).getByText(/its last key is revoked/)).toBeTruthy();
  expect(within(other).queryByRole("button", { name: "Revoke key" })).toBeNull();
});

test("removing one with many registrations takes their number", async () => {
  const asked = server([left]);
  renderPage(<Component />, { path: "/hosts?view=unserved" });

  await userEvent.click(await screen.findByRole("button", { name: "Remove" }));
  const dialog = await screen.findByRole("dialog");
  const yes = within(dialog).getByRole("button", { name: "Remove" });
  expect(yes).toHaveProperty("disabled", true);
  await userEvent.type(within(dialog).getByLabelText(/60/), "60");
  await userEvent.click(yes);

  await waitFor(() => expect(asked.some(({ method }) => method === "DELETE")).toBe(true));
});

test("a new key is allowed for an hour", async () => {
  const asked = server([left]);
  renderPage(<Component />, { path: "/hosts?view=unserved" });

  await userEvent.click(await screen.findByRole("button", { name: "Allow a new key" }));
  await userEvent.click(await screen.findByRole("button", { name: "Allow for an hour" }));

  await waitFor(() =>
    expect(asked.find(({ method }) => method === "POST")?.body).toEqual({ ttl_secs: 3600 }),
  );
});

test("who may not administer sees the hosts with agents, and is not offered the others", async () => {
  const asked = server([left]);
  renderPage(<Component />, { path: "/hosts?view=unserved", rights: { read: ["everything"] } });

  expect(await screen.findByText("No host has enrolled yet")).toBeTruthy();
  expect(screen.queryByText("Without agent")).toBeNull();
  expect(asked.some(({ url }) => url.pathname.endsWith("/unserved"))).toBe(false);
});

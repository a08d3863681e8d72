import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { relayLine } from "./relay-line";
import { Component, cloudsWithout } from "./relays-page";

const relay = {
  relay: "relay-a",
  cloud: 3,
  connected: true,
  connections: 8,
  agents: 1200,
  version: "0.1.0",
  address: "10.3.0.1",
  enrolled_at: 1,
  last_seen_at: 2,
  key_fingerprint: "ab".repeat(32),
};
const away = { ...relay, relay: "relay-b", cloud: 4, connected: false, agents: 0, connections: 0 };

test("relays are listed with what they carry, and an area without any says so", async () => {
  fakeApi({ "GET /api/v1/relays": () => ({ body: { relays: [relay, away] } }) });
  renderPage(<Component />, { path: "/relays" });

  const row = await screen.findByRole("row", { name: /relay-a/ });
  expect(within(row).getByText("Connected")).toBeTruthy();
  expect(within(row).getByText("1,200")).toBeTruthy();
  expect(screen.getByText("1 connected, 1 away")).toBeTruthy();
  expect(screen.getByText(/No relay of cloud area 4 is connected/)).toBeTruthy();
  expect(screen.queryByText(/No relay of cloud area 3/)).toBeNull();
});

test("a revoked relay is no reason to worry about its area", () => {
  expect(cloudsWithout([{ ...away, revoked_at: 5 }])).toEqual([]);
  expect(cloudsWithout([away, { ...away, connected: true }])).toEqual([]);
});

test("revoking a relay that carries many agents takes their number", async () => {
  const asked = fakeApi({
    "GET /api/v1/relays": () => ({ body: { relays: [relay] } }),
    "DELETE /api/v1/relays/relay-a": () => ({ body: { removed: "relay relay-a" } }),
  });
  renderPage(<Component />, { path: "/relays" });

  await userEvent.click(await screen.findByRole("button", { name: "Revoke" }));
  const dialog = await screen.findByRole("dialog");
  expect(within(dialog).getByText(/sessions of 1,200 agents that it carries end at once/)).toBeTruthy();
  const yes = within(dialog).getByRole("button", { name: "Revoke" });
  expect(yes).toHaveProperty("disabled", true);
  await userEvent.type(within(dialog).getByLabelText(/1,200/), "1200");
  await userEvent.click(yes);

  await screen.findByText("1 connected, 0 away");
  expect(asked.some(({ method }) => method === "DELETE")).toBe(true);
});

test("a token for relays comes with the line that starts one", async () => {
  const asked = fakeApi({
    "GET /api/v1/relays": () => ({ body: { relays: [] } }),
    "GET /api/v1/downloads": () => ({ body: { files: [], link_port: 9077 } }),
    "POST /api/v1/tokens": () => ({ status: 201, body: { id: "t", token: "PT1.x", expires_at: 9 } }),
  });
  renderPage(<Component />, { path: "/relays?do=add" });

  expect(await screen.findByText("No relay has enrolled")).toBeTruthy();
  await userEvent.type(await screen.findByLabelText("Cloud area"), "3");
  await userEvent.click(screen.getByRole("button", { name: "Create token" }));

  expect(await screen.findByText(/^PROCTOR_TOKEN='PT1\.x' proctor relay --upstream/)).toBeTruthy();
  const made = asked.find(({ method }) => method === "POST");
  expect(made?.body).toEqual({ relay: true, cloud_id: 3, uses: 2, ttl_secs: 3600 });
});

test("the line is quoted for a shell", () => {
  const line = relayLine({ token: "a'b", upstream: "s:1", listen: "[::]:9077", cloud: 3 });

  expect(line).toBe(
    "PROCTOR_TOKEN='a'\\''b' proctor relay --upstream 's:1' --listen '[::]:9077' --cloud-id 3 --state-dir /var/lib/proctor-relay",
  );
});

test("who may not administer is told which right is missing", async () => {
  fakeApi({
    "GET /api/v1/relays": () => ({
      status: 403,
      body: { error: { code: "permission_denied", message: "no" } },
    }),
  });
  renderPage(<Component />, { path: "/relays", rights: { read: ["everything"] } });

  expect(await screen.findByText(/needs the right “Administer”/)).toBeTruthy();
  expect(screen.getByRole("button", { name: "Add a relay" })).toHaveProperty("disabled", true);
});

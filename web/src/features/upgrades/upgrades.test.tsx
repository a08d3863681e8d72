import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { asPlanned, requestOf, ringsOf } from "./upgrade-dialog";
import { Component as UpgradePage } from "./upgrade-page";
import { Component as UpgradesPage } from "./upgrades-page";

const build = { name: "agent", version: "0.2.0", arch: "x86_64", bytes: 7_000_000, sha256: "cd".repeat(32) };
const upgrade = {
  id: "0199",
  version: "0.2.0",
  state: "paused",
  reason: "no host of the earlier rings was upgraded: see why, then resume or cancel",
  reason_id: "upgrade_of_nobody",
  reason_args: {},
  created_by: "user ana",
  created_at: 1,
  changed_at: 2,
  rings: [1, 60],
  health_deadline_secs: 60,
  max_failures: 0,
  allow_downgrade: false,
};
const ring = { waiting: 0, upgrading: 0, done: 0, failed: 0, skipped: 0 };
const host = {
  host: "0:10.0.0.1",
  agent: "a-1",
  ring: 1,
  state: "skipped",
  reason: "the host is not connected",
  reason_id: "upgrade_host_absent",
  reason_args: {},
  version_before: "0.1.0",
  changed_at: 2,
};
const detail = {
  ...upgrade,
  progress: [
    { ...ring, skipped: 1 },
    { ...ring, waiting: 60 },
  ],
  hosts: [host],
};
const plan = {
  version: "0.2.0",
  builds: [build],
  rings: [
    { hosts: ["0:10.0.0.1"], away: 0, current: 0, too_old: 0, without_build: 0, newer: 0 },
    {
      hosts: ["0:10.0.0.2", "0:10.0.0.3", "0:10.0.0.4"],
      away: 1,
      current: 1,
      too_old: 0,
      without_build: 0,
      newer: 0,
    },
  ],
  health_deadline_secs: 60,
  max_failures: 0,
  allow_downgrade: false,
};

function server(more: Parameters<typeof fakeApi>[0] = {}, upgrades: object[] = []) {
  return fakeApi({
    "GET /api/v1/builds": () => ({ body: { builds: [build] } }),
    "GET /api/v1/upgrades": () => ({ body: { upgrades } }),
    "GET /api/v1/upgrades/0199": () => ({ body: detail }),
    "GET /api/v1/businesses": () => ({ body: { businesses: [] } }),
    ...more,
  });
}

test("an upgrade starts with exactly what its plan names", async () => {
  const asked = server({
    "POST /api/v1/upgrades/plan": () => ({ body: plan }),
    "POST /api/v1/upgrades": () => ({ status: 201, body: upgrade }),
  });
  const { router } = renderPage(<UpgradesPage />, { path: "/upgrades?do=start" });

  const dialog = await screen.findByRole("dialog");
  expect(within(dialog).getByText(/the plan appears here/)).toBeTruthy();
  await userEvent.click(within(dialog).getByLabelText("To version"));
  await userEvent.click(await screen.findByTitle("0.2.0 (x86_64)"));
  await userEvent.click(await within(dialog).findByRole("button", { name: "Upgrade 2 hosts" }));

  await waitFor(() => expect(router.state.location.pathname).toBe("/upgrades/0199"));
  const started = asked.find(({ method, url }) => method === "POST" && url.pathname === "/api/v1/upgrades");
  expect(started?.body).toEqual({
    version: "0.2.0",
    hosts: ["0:10.0.0.1", "0:10.0.0.2", "0:10.0.0.3", "0:10.0.0.4"],
    rings: [1, 4],
    health_deadline_secs: 60,
    max_failures: 0,
    allow_downgrade: false,
  });
});

test("an upgrade that is under way says why it waits, and is resumed or cancelled by count", async () => {
  const asked = server({ "POST /api/v1/upgrades/0199/cancel": () => ({ body: upgrade }) });
  renderPage(<UpgradePage />, { path: "/upgrades/0199", route: "/upgrades/:id" });

  expect(await screen.findByText(/no host of the earlier rings was upgraded/)).toBeTruthy();
  expect(screen.getByRole("img", { name: "Ring 1: Skipped 1" })).toBeTruthy();
  expect(await screen.findByText("the host is not connected")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Cancel upgrade" }));
  const dialog = await screen.findByRole("dialog");
  const yes = within(dialog).getByRole("button", { name: "Skip 60 hosts" });
  expect(yes).toHaveProperty("disabled", true);
  await userEvent.type(within(dialog).getByLabelText(/60/), "60");
  await userEvent.click(yes);

  await waitFor(() => expect(asked.some(({ url }) => url.pathname.endsWith("/cancel"))).toBe(true));
});

test("reasons are in the language of the console", async () => {
  server();
  renderPage(<UpgradePage />, { path: "/upgrades/0199", route: "/upgrades/:id", language: "zh" });

  expect(await screen.findByText(/之前各批没有主机升级成功/)).toBeTruthy();
  expect(await screen.findByText("主机未连接")).toBeTruthy();
});

test("nothing is offered without a program, or while another upgrade goes on", async () => {
  server({ "GET /api/v1/builds": () => ({ body: { builds: [] } }) });
  const first = renderPage(<UpgradesPage />, { path: "/upgrades" });
  expect(await screen.findByText("No agent program")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Upgrade agents" })).toHaveProperty("disabled", true);
  first.unmount();

  server({}, [upgrade]);
  renderPage(<UpgradesPage />, { path: "/upgrades" });

  expect(await screen.findByRole("link", { name: "0.2.0" })).toBeTruthy();
  expect(screen.getByText("1 + 60")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Upgrade agents" })).toHaveProperty("disabled", true);
});

test("who may not administer is told which right is missing", async () => {
  const refused = () => ({ status: 403, body: { error: { code: "permission_denied", message: "no" } } });
  server({ "GET /api/v1/upgrades": refused, "GET /api/v1/builds": refused });
  renderPage(<UpgradesPage />, {
    path: "/upgrades",
    rights: { read: ["everything"], admin: ["business:2"] },
  });

  expect((await screen.findAllByText(/needs the right “Administer”/)).length).toBe(2);
  expect(screen.getByRole("button", { name: "Upgrade agents" })).toHaveProperty("disabled", true);
});

test("a form stands for a request once it is complete", () => {
  const fields = {
    where: "all" as const,
    hosts: "",
    rings: "1, 5%，100%",
    deadline: 60,
    maxFailures: 2,
    downgrade: false,
  };

  expect(ringsOf("1, 5%，100%")).toEqual([1, "5%", "100%"]);
  expect(requestOf(fields)).toBeUndefined();
  expect(requestOf({ ...fields, version: "1.0.0", where: "hosts" })).toBeUndefined();
  expect(requestOf({ ...fields, version: "1.0.0", where: "business" })).toBeUndefined();
  expect(requestOf({ ...fields, version: "1.0.0", deadline: null })).toBeUndefined();
  expect(requestOf({ ...fields, version: "1.0.0" })).toMatchObject({ all: true, max_failures: 2 });
  expect(asPlanned({ version: "0.2.0", all: true }, plan)).not.toHaveProperty("all");
});

import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { end, startAgent } from "../fleet.mjs";
import { call, home, link, openPage } from "./support.mjs";

const undo = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function open(options) {
  const world = await openPage(options);
  undo.push(world.close);
  return world;
}

const NEW = "127.0.0.2";

/** The same process on this host and the new one; they share a disk, so each has a directory of its own. */
async function registerOn(ip) {
  const dir = join(home, `pair-${ip}`);
  mkdirSync(dir, { recursive: true });
  copyFileSync("/bin/sleep", join(dir, "twin"));
  const pidFile = join(dir, "twin.pid");
  await call("POST", "/processes?update=true", {
    meta: { namespace: "pair", name: "twin", labels: {} },
    hosts: [{ ip, bk_cloud_id: 0 }],
    spec: {
      identity: { proc_name: "twin", setup_path: dir, pid_path: pidFile, user: "root" },
      control: {
        start_cmd: `./twin 100000 >/dev/null 2>&1 & echo $! > ${pidFile}`,
        stop_cmd: `kill $(cat ${pidFile})`,
      },
      resource: { cpu: 50, mem: 50 },
      monitor_policy: { auto_type: 1, start_check_secs: 1, stop_check_secs: 1 },
    },
  });
}

const runs = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

test("a host joins with the printed token, and a process is started on two hosts and watched", async () => {
  const { page, open: go } = await open();
  await go("/enrol");
  await page.getByLabel("Hosts", { exact: true }).fill("1");
  await page.getByLabel("Address for agents").fill(`127.0.0.1:${link}`);
  await page.getByRole("button", { name: "Create token" }).click();
  const line = page.locator(".command-line:not(.is-sample) pre");
  await line.waitFor();
  const [, joinToken] = /PROCTOR_TOKEN='([^']+)'/.exec(await line.textContent());
  undo.push(() => call("DELETE", `/hosts/0:${NEW}`));
  const agent = startAgent(home, link, joinToken, NEW);
  undo.push(() => end(agent));

  await page
    .locator(".joined")
    .getByRole("link", { name: `0:${NEW}` })
    .waitFor({ timeout: 30_000 });
  await page.getByText("1 of 1 used").waitFor();
  await registerOn("127.0.0.1");
  await registerOn(NEW);
  undo.push(async () => {
    await call("POST", "/operations", { operation: "kill", process: "pair/twin", all: true });
    await call("DELETE", "/processes/pair/twin", { all: true });
  });

  await page.keyboard.press("/");
  await page.getByRole("combobox", { name: "Command palette" }).fill("start twin");
  await page
    .getByRole("option", { name: /pair\/twin/ })
    .first()
    .waitFor();
  await page.keyboard.press("Enter");
  await page.getByText("2 will run").waitFor();
  await page.getByText("on 2 hosts").waitFor();
  await page.getByRole("button", { name: "Start 2 processes" }).click();
  await page.waitForURL("**/tasks/**");
  await page.locator(".task-counts span", { hasText: /^2 Succeeded$/ }).waitFor({ timeout: 60_000 });
  await page.getByRole("img", { name: "2 targets: 2 succeeded, 0 failed" }).waitFor();

  await go("/processes/pair/twin");
  await page
    .locator(".phase-sums")
    .getByText(/^2 Running$/)
    .waitFor({ timeout: 30_000 });
  const { processes } = await call("GET", "/processes?namespace=pair&name=twin");
  expect(processes.map(({ host }) => host).sort()).toEqual(["0:127.0.0.1", `0:${NEW}`]);
  expect(processes.every(({ pid }) => runs(pid))).toBe(true);
  const [victim] = processes;
  process.kill(victim.pid, "SIGKILL");
  await page.getByRole("tab", { name: "Timeline" }).click();
  await page.locator(".timeline").getByText("Restarted").first().waitFor({ timeout: 30_000 });
});

test("a host goes into maintenance, its plan says so, and comes out of it", async () => {
  const host = "0:10.64.0.9";
  const { page, open: go } = await open();
  await go(`/hosts/${encodeURIComponent(host)}`);

  await page.getByRole("button", { name: "Maintenance…" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("new disk");
  await page.getByRole("dialog").getByRole("button", { name: "Begin maintenance" }).click();
  await page.getByRole("status").getByText("new disk").waitFor();
  await go(`/operate?op=restart&process=swarm/p-1&hosts=${host}`);
  await page.getByText("1 on hosts in maintenance").waitFor();
  expect(await page.getByRole("button", { name: "Restart 0 processes" }).isDisabled()).toBe(true);
  await go(`/hosts/${encodeURIComponent(host)}`);
  await page.getByRole("button", { name: /^End maintenance/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End maintenance" }).click();

  await page.getByRole("button", { name: "Maintenance…" }).waitFor();
});

test("a host is moved to a business, and one that is gone is removed", async () => {
  const { page, open: go } = await open();
  await go("/hosts/0%3A10.64.0.10");

  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: "Move to a business…" }).click();
  await page.getByRole("dialog").getByRole("combobox").click();
  await page.getByTitle("payments").click();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.locator(".facts").getByText("payments").waitFor();

  await go("/hosts?q=10.65.0");
  await page
    .getByRole("link", { name: /10\.65\.0/ })
    .first()
    .click();
  await page.getByText("Away since", { exact: false }).first().waitFor();
  const gone = decodeURIComponent(new URL(page.url()).pathname.split("/").pop());
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: /^Remove/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.waitForURL("**/hosts");
  const { hosts } = await call("GET", "/hosts?online=false&limit=1000");
  expect(hosts.map(({ host }) => host)).not.toContain(gone);
});

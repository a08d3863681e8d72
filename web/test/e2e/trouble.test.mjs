import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { call, home, openPage, site, userWith } from "./support.mjs";

const undo = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function open(options) {
  const world = await openPage(options);
  undo.push(world.close);
  return world;
}

/** A process of this host that ends with the test. */
async function register(name, { start, labels = {}, memory = 10, policy = {} }) {
  const dir = join(home, "e2e");
  mkdirSync(dir, { recursive: true });
  const pidFile = join(dir, `${name}.pid`);
  copyFileSync(name === "hungry" ? "/usr/bin/tail" : "/bin/sleep", join(dir, name));
  await call("POST", "/processes?update=true", {
    meta: { namespace: "trouble", name, labels },
    hosts: [{ ip: "127.0.0.1", bk_cloud_id: 0 }],
    spec: {
      identity: { proc_name: name, setup_path: dir, pid_path: pidFile, user: "root" },
      control: { start_cmd: start(pidFile), stop_cmd: `kill $(cat ${pidFile})` },
      resource: { cpu: 50, mem: memory },
      monitor_policy: { auto_type: 1, start_check_secs: 1, stop_check_secs: 1, ...policy },
    },
  });
  undo.push(async () => {
    await call("POST", "/operations", { operation: "kill", process: `trouble/${name}`, all: true });
    await call("DELETE", `/processes/trouble/${name}`, { all: true });
  });
}

const sleeps = (name) => (pidFile) => `./${name} 100000 >/dev/null 2>&1 & echo $! > ${pidFile}`;

async function start(name) {
  const { task_id } = await call("POST", "/operations", {
    operation: "start",
    process: `trouble/${name}`,
    all: true,
  });
  await expect
    .poll(async () => (await call("GET", `/tasks/${task_id}`)).pending, { timeout: 30_000 })
    .toBe(0);
}

test("a process that is killed outside shows its end and its restart on its page", async () => {
  await register("victim", { start: sleeps("victim") });
  await start("victim");
  const { page, open: go } = await open();
  await go("/processes/trouble/victim?tab=timeline");
  await page.locator(".timeline").waitFor();
  const { processes } = await call("GET", "/processes?namespace=trouble&name=victim");

  process.kill(processes[0].pid, "SIGKILL");

  const timeline = page.locator(".timeline");
  await timeline.getByText("Exited").first().waitFor({ timeout: 30_000 });
  await timeline.getByText("Restarted").first().waitFor({ timeout: 30_000 });
  await timeline.getByText("signal 9", { exact: false }).first().waitFor();
});

test("a process over its memory limit is ended, and its page says why", async () => {
  const bytes = Math.round(totalmem() * 0.03);
  await register("hungry", {
    memory: 1,
    start: (pidFile) =>
      `(head -c ${bytes} /dev/zero; exec sleep 100000) | ./hungry >/dev/null 2>&1 & echo $! > ${pidFile}`,
  });
  await start("hungry");
  const { page, open: go } = await open();

  await go("/processes/trouble/hungry?tab=timeline");
  await page.locator(".timeline").getByText("Over its limit").first().waitFor({ timeout: 60_000 });
  await page
    .locator(".timeline")
    .getByText(/memory/)
    .first()
    .waitFor();
  await page.getByRole("tab", { name: "Instances" }).click();
  await page
    .locator(".phase-sums")
    .getByText(/use of memory/)
    .waitFor({ timeout: 30_000 });

  await go("/");
  await page
    .getByRole("region", { name: "Needs attention" })
    .getByRole("link", { name: "trouble/hungry" })
    .waitFor();
});

test("a rolling restart stops at its failing canary and says so", async () => {
  const labels = { roll: "1" };
  const broken = join(home, "e2e", "broken-upstream");
  const refuses = `if [ -e ${broken} ]; then echo 'no such upstream' >&2; exit 3; fi`;
  await register("a-broken", { labels, start: (pidFile) => `${refuses}; ${sleeps("a-broken")(pidFile)}` });
  await register("b-sound", { labels, start: sleeps("b-sound") });
  await start("a-broken");
  await start("b-sound");
  const pidOf = async (name) =>
    (await call("GET", `/processes?namespace=trouble&name=${name}`)).processes[0].pid;
  const soundPid = await pidOf("b-sound");
  writeFileSync(broken, "");
  const { page, open: go } = await open();

  await go("/operate?op=restart&selector=roll%3D1&namespace=trouble&parallel=1&canary=1");
  await page.getByRole("button", { name: "Restart 2 processes" }).click();
  await page.waitForURL("**/tasks/**");

  await page
    .locator(".rollout")
    .getByText("too many targets before this one failed", { exact: false })
    .waitFor({
      timeout: 30_000,
    });
  await page.getByRole("row", { name: /Skipped/ }).waitFor();
  await page.getByRole("row", { name: /trouble\/a-broken/ }).click();
  await page.getByRole("dialog").locator("pre", { hasText: "no such upstream" }).waitFor();
  expect(await pidOf("b-sound")).toBe(soundPid);
});

test("a running rollout is paused and resumed by hand", async () => {
  const { page, open: go } = await open();
  const hosts = Array.from({ length: 12 }, (_, index) => `10.64.0.${index + 1}`).join(",");

  await go(`/operate?op=restart&process=swarm/p-3&hosts=${hosts}&parallel=1&failures=12`);
  await page.getByRole("button", { name: "Restart 12 processes" }).click();
  await page.waitForURL("**/tasks/**");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("Paused. What is released continues", { exact: false }).waitFor();
  await page.getByRole("button", { name: /^Continue with the other/ }).click();

  await page.getByText("12 of 12 released").waitFor({ timeout: 60_000 });
});

test("who has no right at all is told what is missing", async () => {
  const stranger = await userWith(`stranger-${Date.now()}`, "operator", "namespace:nothing-here");
  const { page } = await open({ as: stranger });

  await page.goto(`${site}/processes/web/edge-proxy`);
  await page.getByText("not registered on any host that you may read", { exact: false }).waitFor();
  await page.goto(`${site}/operate?op=restart&process=web/edge-proxy&hosts=127.0.0.1`);

  await page.getByText("1 not allowed").waitFor();
  expect(await page.getByRole("button", { name: "Restart 0 processes" }).isDisabled()).toBe(true);
});

test("the same way leads through the console in Chinese", async () => {
  const { page, open: go } = await open({ language: "zh" });

  await go("/");
  await page.getByText("需要关注").first().waitFor();
  await page.keyboard.press("/");
  await page.getByRole("combobox").fill("索引");
  await page.getByRole("option", { name: "数据/索引构建" }).first().waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "索引构建" }).waitFor();
  await go("/operate?op=restart&process=%E6%95%B0%E6%8D%AE%2F%E7%B4%A2%E5%BC%95%E6%9E%84%E5%BB%BA");
  await page.getByRole("button", { name: /重启 1 个进程/ }).waitFor();
  await page.getByText("运行中").first().waitFor();
});

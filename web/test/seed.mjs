// Businesses, people, processes in every phase, tasks, pools and a webhook.
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

const LOCAL = "0:127.0.0.1";
/** Keeps 200 MB, for a pool to show. */
const HOARD = "(head -c 200000000 /dev/zero; exec sleep 100000) | ./session-store";

/** Returns the token of a user who may do everything. */
export async function seed(call, dir, processes, version) {
  await call("PUT", "/businesses/2", { name: "web" });
  await call("PUT", "/businesses/3", { name: "数据平台" });
  await call("PUT", "/businesses/7", { name: "payments" });
  await call("PUT", "/business-sets/1", { name: "production", members: [2, 7] });
  const { hosts } = await call("GET", "/hosts?limit=1000");
  const simulated = hosts.filter((host) => host.host !== LOCAL).map((host) => host.host);
  await place(call, simulated, 2, 0, 0.5);
  await place(call, simulated, 3, 0.5, 0.8);
  await place(call, simulated, 7, 0.8, 0.95);
  await call("PUT", "/hosts/placements", { hosts: [LOCAL], business: 2 });

  await registerLocal(call, dir);
  for (let index = 0; index < processes; index += 1) {
    await operate(call, { operation: "start", process: `swarm/p-${index}`, all: true });
  }
  for (const name of ["web/edge-proxy", "web/session-store", "数据/索引构建"]) {
    await operate(call, { operation: "start", process: name, all: true });
  }
  await operate(call, { operation: "start", process: "web/bad-config", all: true }, true);
  await operate(call, { operation: "start", process: "web/thumbnailer", all: true });
  breakThumbnailer(join(dir, "apps"));
  await operate(
    call,
    {
      operation: "restart",
      process: "swarm/p-0",
      all: true,
      rolling: { max_parallel: "10%", max_failures: 1000, canary: 5, wait_healthy: false },
    },
    true,
  );
  await call("PUT", "/pools", {
    hosts: [LOCAL],
    pools: [
      {
        namespace: "web",
        id: "web",
        cpu: 40,
        memory: 30,
        cpu_weight: "usage",
        memory_weight: "usage_by_limit",
      },
    ],
  });
  // No simulated agent takes it, so it is paused behind its first ring.
  await call("POST", "/upgrades", { version, all: true });
  return people(call);
}

/** It dies and cannot come back, so the agent gives up. */
function breakThumbnailer(home) {
  rmSync(join(home, "thumbnailer"));
  process.kill(Number(readFileSync(join(home, "thumbnailer.pid"), "utf8")));
}

async function place(call, hosts, business, from, to) {
  const part = hosts.slice(Math.floor(hosts.length * from), Math.floor(hosts.length * to));
  if (part.length > 0) await call("PUT", "/hosts/placements", { hosts: part, business });
}

async function people(call) {
  for (const name of ["fleet-admin", "on-call", "deployer-web"]) await call("POST", "/users", { name });
  await call("PUT", "/roles/restarter", { classes: ["read", "operate"] });
  await call("POST", "/bindings", { role: "admin", subject: "user:fleet-admin", scope: "everything" });
  await call("POST", "/bindings", { role: "restarter", subject: "user:on-call", scope: "business:2" });
  await call("POST", "/bindings", {
    role: "owner",
    subject: "user:deployer-web",
    scope: "namespace:web",
    allow_users: ["web"],
    allow_roots: ["/opt/web"],
  });
  await call("POST", "/apps", { code: "node-manager", roles: [{ role: "operator", scope: "set:1" }] });
  await call("POST", "/webhooks", {
    url: "https://alerts.example.com/proctor",
    types: ["restart_failed", "cancel_restart"],
  });
  await call("POST", "/tokens", { uses: 25, ttl_secs: 86400, cloud_id: 0, business: 7 });
  return (await call("POST", "/users/fleet-admin/tokens", { note: "console", ttl_secs: 86400 })).token;
}

async function registerLocal(call, dir) {
  const home = join(dir, "apps");
  mkdirSync(home, { recursive: true });
  const known = [
    ["web", "edge-proxy", { env: "prod", tier: "edge" }, "./edge-proxy 100000", {}],
    ["web", "session-store", { env: "prod", tier: "cache" }, HOARD, {}],
    [
      "web",
      "thumbnailer",
      { env: "prod", tier: "batch" },
      "./thumbnailer 100000",
      { start_retries: 1, start_interval: 1 },
    ],
    [
      "web",
      "bad-config",
      { env: "staging", tier: "edge" },
      "echo 'config.toml:12: unknown key upstrem' >&2; exit 1",
      {},
    ],
    [
      "web",
      "report-mailer",
      { env: "prod", tier: "batch" },
      "./report-mailer 5",
      { auto_type: 0, crontab_rule: "*/5 * * * *" },
    ],
    ["数据", "索引构建", { env: "prod", team: "搜索" }, "./indexer 100000", {}],
  ];
  for (const [namespace, name, labels, command, policy] of known) {
    const file = name === "索引构建" ? "indexer" : name;
    rmSync(join(home, file), { force: true });
    copyFileSync(command === HOARD ? "/usr/bin/tail" : "/bin/sleep", join(home, file));
    const told = `echo "$(date -Is) ${file} is ready, pid $!" >> ${file}.log`;
    const start = command.includes("./")
      ? `${command} >/dev/null 2>&1 & echo $! > ${file}.pid; ${told}`
      : command;
    const registration = {
      meta: { namespace, name, labels },
      hosts: [{ ip: "127.0.0.1", bk_cloud_id: 0 }],
      spec: {
        identity: {
          proc_name: file,
          setup_path: home,
          pid_path: join(home, `${file}.pid`),
          log_path: join(home, `${file}.log`),
          user: "root",
        },
        control: { start_cmd: start, stop_cmd: `kill $(cat ${file}.pid)` },
        resource: { cpu: 20, mem: 10 },
        monitor_policy: { auto_type: 1, start_check_secs: 1, stop_check_secs: 1, ...policy },
      },
    };
    await call("POST", "/processes", registration);
    if (file === "edge-proxy") {
      registration.spec.resource.mem = 15;
      registration.spec.control.reload_cmd = "kill -HUP $(cat edge-proxy.pid)";
      await call("POST", "/processes?update=true", registration);
    }
  }
}

async function operate(call, request, leave = false) {
  const { task_id: id } = await call("POST", "/operations", request);
  const deadline = Date.now() + 60_000;
  while (!leave && (await call("GET", `/tasks/${id}`)).pending > 0 && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

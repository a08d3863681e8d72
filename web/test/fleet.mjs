// A real Proctor with a real agent, simulated hosts and something of everything to look at.
// Used by the end-to-end tests and by `npm run screenshots`; run by itself, it stays until Ctrl-C:
//
//   PROCTOR_BIN=../target/debug/proctor node test/fleet.mjs
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { seed } from "./seed.mjs";

/** Behind it stands the version of an agent's program. */
const BUILD_MARK = "proctor-agent build, version ";
const BIN = resolve(process.env.PROCTOR_BIN ?? "../target/debug/proctor");

export async function startFleet({ hosts = 240, processes = 4 } = {}) {
  const dir = mkdtempSync(join(tmpdir(), "proctor-console-"));
  const http = Number(process.env.PROCTOR_PORT) || (await freePort());
  const link = await freePort();
  const url = `http://127.0.0.1:${http}`;
  const children = [];
  const stop = async () => {
    for (const child of children.reverse()) await end(child);
    await endSupervised(dir);
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    const { child, secret } = await startServer(dir, http, link, writeBuild(dir));
    children.push(child);
    const call = caller(url, secret);
    children.push(await startRelay(call, dir, link));
    const joinToken = await call("POST", "/tokens", { uses: hosts + 20, ttl_secs: 36000 });
    children.push(startSwarm(dir, url, link, secret, joinToken.token, hosts, processes));
    const deadline = Date.now() + 120_000;
    while ((await call("GET", `/hosts?online=true&limit=1000`)).hosts.length < Math.min(hosts, 1000)) {
      if (Date.now() > deadline) throw new Error("the simulated hosts did not come");
      await pause(300);
    }
    await loseHosts(dir, link, joinToken.token);
    const token = await seed(call, dir, processes, NEW_VERSION);
    return { url, token, call, stop, dir, link };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Supervised processes outlive their agent; here they end with the fleet. They run below its directory. */
export async function endSupervised(dir) {
  for (;;) {
    const pids = readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name) && runsBelow(name, dir));
    if (pids.length === 0) return;
    for (const pid of pids) {
      try {
        process.kill(Number(pid), "SIGKILL");
      } catch {
        // It has gone by itself.
      }
    }
    await pause(50);
  }
}

function runsBelow(pid, dir) {
  try {
    return readlinkSync(`/proc/${pid}/cwd`).startsWith(dir);
  } catch {
    return false;
  }
}

/** The version of an agent's program that the server holds; the file only says that it is one. */
export const NEW_VERSION = "9.9.0";

function writeBuild(dir) {
  const builds = join(dir, "builds");
  mkdirSync(builds, { mode: 0o755 });
  const head = Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x3e, 0]);
  const content = Buffer.concat([
    head,
    Buffer.from(`${BUILD_MARK}${NEW_VERSION}\0`),
    Buffer.alloc(7_000_000),
  ]);
  writeFileSync(join(builds, `agent-${NEW_VERSION}`), content, { mode: 0o644 });
  return builds;
}

/** A relay of a cloud area without agents. */
async function startRelay(call, dir, link) {
  const { token } = await call("POST", "/tokens", { relay: true, cloud_id: 3, uses: 1, ttl_secs: 3600 });
  const args = ["relay", "--upstream", `127.0.0.1:${link}`, "--listen", "127.0.0.1:0", "--cloud-id", "3"];
  args.push("--state-dir", join(dir, "relay"));
  return spawn(BIN, args, { env: { ...process.env, PROCTOR_TOKEN: token }, stdio: "ignore" });
}

/** A server with one local agent, and what agents can be upgraded to. */
export async function startServer(dir, http, link, downloads) {
  const args = [
    "dev",
    "--http",
    `127.0.0.1:${http}`,
    "--link",
    `127.0.0.1:${link}`,
    "--data-dir",
    join(dir, "data"),
    ...(downloads ? ["--download-dir", downloads] : []),
  ];
  const child = spawn(BIN, args, {
    stdio: ["ignore", "pipe", process.env.PROCTOR_LOG ? "inherit" : "ignore"],
  });
  let text = "";
  const secret = await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", () => reject(new Error(`the server ended early:\n${text}`)));
    child.stdout.on("data", (chunk) => {
      text += chunk;
      const found = /app secret\s+(\S+)/.exec(text);
      if (found) resolve(found[1]);
    });
  });
  // The link that signs a browser in, once; it is printed before the secret.
  return { child, secret, signInLink: /console\s+(\S+)/.exec(text)?.[1] ?? "" };
}

/** A further real agent of this machine, under an address of its own. */
export function startAgent(dir, link, token, ip, state = join(dir, `agent-${ip}`)) {
  const args = ["--server", `127.0.0.1:${link}`, "--state-dir", state, "--ip", ip];
  const env = { ...process.env, PROCTOR_TOKEN: token };
  return spawn(join(dirname(BIN), "proctor-agent"), args, { env, stdio: "ignore" });
}

export async function end(child) {
  child.kill("SIGTERM");
  await new Promise((done) => (child.exitCode === null ? child.once("exit", done) : done()));
}

/** Simulated hosts; some of them are slow, fail or crash, unless all of them are to be well. */
export function startSwarm(dir, url, link, secret, token, hosts, processes, hasTrouble = true) {
  const behaviour = join(dir, "behaviour.toml");
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    behaviour,
    `[[group]]\nname = "slow"\nshare = 0.1\ncommand_ms = [300, 2500]\n\n` +
      `[[group]]\nname = "broken"\nshare = 0.05\nfailures = 0.6\n\n` +
      `[[group]]\nname = "crashing"\nshare = 0.02\ncrash_every_secs = 20\n`,
  );
  const args = ["--server", `127.0.0.1:${link}`, "swarm", "--agents", String(hosts), "--api", url];
  args.push("--processes-per-agent", String(processes), "--user", "admin");
  if (hasTrouble) args.push("--behaviour", behaviour);
  const env = { ...process.env, PROCTOR_TOKEN: token, PROCTOR_APP_CODE: "dev", PROCTOR_APP_SECRET: secret };
  return spawn(BIN, args, { env, stdio: "ignore" });
}

/** Three hosts that were there once. */
async function loseHosts(dir, link, token) {
  const args = ["--server", `127.0.0.1:${link}`, "swarm", "--agents", "3", "--first-ip", "10.65.0.0"];
  const env = { ...process.env, PROCTOR_TOKEN: token };
  const child = spawn(BIN, [...args, "--for", "3s"], { env, cwd: dir, stdio: "ignore" });
  await new Promise((resolve) => child.once("exit", resolve));
}

export function caller(url, secret) {
  const auth = JSON.stringify({ bk_app_code: "dev", bk_app_secret: secret, bk_username: "admin" });
  return async (method, path, body) => {
    const answer = await fetch(`${url}/api/v1${path}`, {
      method,
      headers: { "x-bkapi-authorization": auth, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const probe = net.createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

if (import.meta.url === `file://${process.argv[1]}`) {
  const fleet = await startFleet({
    hosts: Number(process.env.HOSTS ?? 240),
    processes: Number(process.env.PROCESSES ?? 4),
  });
  console.log(`server ${fleet.url}\ntoken  ${fleet.token}`);
  for (const signal of ["SIGINT", "SIGTERM"])
    process.on(signal, () => fleet.stop().then(() => process.exit(0)));
}

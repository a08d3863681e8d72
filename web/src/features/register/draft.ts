import type { Process, Registration, Spec } from "@/api/processes";
import { splitProcess } from "@/api/processes";
import { splitHosts } from "@/features/operate/request";

/** The form's fields: texts as they are typed, so that nothing is lost between form and JSON. */
export type Draft = {
  namespace: string;
  name: string;
  labels: string;
  hosts: string;
  identity: Record<IdentityName, string>;
  control: Record<CommandName, string>;
  policy: {
    auto_type: number;
    crontab_rule: string;
    numbers: Record<PolicyNumber, number | null>;
    health: Record<HealthNumber, number | null>;
  };
  limits: Record<"cpu" | "mem" | "fd" | "disk" | "net", number | null>;
  report_id: number | null;
  /** A file a line: its path and its md5, with a tab or a space between them. */
  configmap: string;
};

export type IdentityName =
  | "proc_name"
  | "setup_path"
  | "pid_path"
  | "user"
  | "config_path"
  | "log_path"
  | "index_key";

export const commandNames = [
  "start_cmd",
  "stop_cmd",
  "restart_cmd",
  "reload_cmd",
  "kill_cmd",
  "version_cmd",
  "health_cmd",
] as const;
export type CommandName = (typeof commandNames)[number];
export const policyNumbers = [
  "start_check_secs",
  "stop_check_secs",
  "op_timeout",
  "start_retries",
  "start_interval",
  "instance_num",
  "cycle_time",
] as const;
export type PolicyNumber = (typeof policyNumbers)[number];
export const healthNumbers = ["interval_secs", "timeout_secs", "failures", "grace_secs"] as const;
export type HealthNumber = (typeof healthNumbers)[number];

const empty = <Name extends string, Value>(names: readonly Name[], value: Value) =>
  Object.fromEntries(names.map((name) => [name, value])) as Record<Name, Value>;

export const emptyDraft: Draft = {
  namespace: "",
  name: "",
  labels: "",
  hosts: "",
  identity: {
    proc_name: "",
    setup_path: "",
    pid_path: "",
    user: "root",
    config_path: "",
    log_path: "",
    index_key: "",
  },
  control: empty(commandNames, ""),
  policy: {
    auto_type: 1,
    crontab_rule: "",
    numbers: empty(policyNumbers, null),
    health: empty(healthNumbers, null),
  },
  limits: { cpu: null, mem: null, fd: null, disk: null, net: null },
  report_id: null,
  configmap: "",
};

const lifetimes = ["periodic", "resident", "once"] as const;

/** A form for what is registered on some hosts. */
export function draftOf(instances: Process[], spec: Spec): Draft {
  const { identity, control, policy, limits } = spec;
  const { health } = policy;
  return draftFrom({
    meta: { ...splitProcess(instances[0]?.process ?? "/"), labels: spec.labels as Record<string, string> },
    agent_id_list: instances.map((instance) => instance.host),
    spec: {
      identity: filled({ ...identity }) as Registration["spec"]["identity"],
      control: filled({
        start_cmd: control.start ?? "",
        stop_cmd: control.stop ?? "",
        restart_cmd: control.restart ?? "",
        reload_cmd: control.reload ?? "",
        kill_cmd: control.kill ?? "",
        version_cmd: control.version ?? "",
        health_cmd: control.health ?? "",
      }),
      resource: filled({
        cpu: limits.cpu ?? null,
        mem: limits.memory ?? null,
        fd: limits.fd ?? null,
        disk: limits.disk ?? null,
        net: limits.net ?? null,
      }),
      monitor_policy: {
        auto_type: Math.max(0, lifetimes.indexOf(policy.lifetime)),
        crontab_rule: policy.crontab_rule ?? undefined,
        cycle_time: policy.cycle ?? undefined,
        instance_num: policy.instances,
        start_check_secs: policy.start_check,
        stop_check_secs: policy.stop_check,
        op_timeout: policy.op_timeout,
        start_retries: policy.start_retries,
        start_interval: policy.start_interval,
        health_check: health && {
          interval_secs: health.interval,
          timeout_secs: health.timeout,
          failures: health.failures,
          grace_secs: health.grace,
        },
      },
      configmap: spec.configmap.length > 0 ? spec.configmap : undefined,
      warn_report_policy: spec.report_id == null ? undefined : { report_id: spec.report_id },
    },
  });
}

/** The form for a registration. */
export function draftFrom({ meta, hosts = [], agent_id_list: agents = [], spec }: Registration): Draft {
  const policy = spec.monitor_policy ?? spec.alive_monitor_policy ?? { auto_type: 1 };
  const numbersOf = <Name extends string>(names: readonly Name[], from: Partial<Record<Name, number>>) =>
    Object.fromEntries(names.map((name) => [name, from[name] ?? null])) as Record<Name, number | null>;
  return {
    namespace: meta.namespace,
    name: meta.name,
    labels: labelsToText(meta.labels ?? {}),
    hosts: [...hosts.map((host) => `${host.bk_cloud_id}:${host.ip}`), ...agents].join(" "),
    identity: { ...emptyDraft.identity, ...spec.identity },
    control: { ...emptyDraft.control, ...spec.control },
    policy: {
      auto_type: policy.auto_type,
      crontab_rule: policy.crontab_rule ?? policy.crotab_rule ?? "",
      numbers: numbersOf(policyNumbers, policy),
      health: numbersOf(healthNumbers, policy.health_check ?? {}),
    },
    limits: { ...emptyDraft.limits, ...spec.resource },
    report_id: spec.warn_report_policy?.report_id ?? null,
    configmap: filesToText(spec.configmap ?? []),
  };
}

/** What is sent; empty fields are left out. */
export function registrationOf(draft: Draft): Registration {
  const { policy } = draft;
  return {
    meta: { namespace: draft.namespace.trim(), name: draft.name.trim(), labels: labelsOf(draft.labels) },
    ...hostsOf(draft.hosts),
    spec: {
      identity: filled(draft.identity) as Registration["spec"]["identity"],
      control: filled(draft.control),
      resource: filled(draft.limits),
      monitor_policy: {
        auto_type: policy.auto_type,
        ...filled(policy.numbers),
        ...(policy.crontab_rule.trim() ? { crontab_rule: policy.crontab_rule.trim() } : {}),
        ...(draft.control.health_cmd ? { health_check: filled(policy.health) } : {}),
      },
      ...(draft.configmap.trim() ? { configmap: filesOf(draft.configmap) } : {}),
      ...(draft.report_id === null ? {} : { warn_report_policy: { report_id: draft.report_id } }),
    },
  };
}

/** Whether it is worth asking the server for a plan. */
export function isPlannable(registration: Registration): boolean {
  const { meta, spec, hosts = [], agent_id_list: agents = [] } = registration;
  const { proc_name, setup_path, pid_path, user } = spec.identity;
  const required = [meta.namespace, meta.name, proc_name, setup_path, pid_path, user];
  return required.every(Boolean) && hosts.length + agents.length > 0;
}

function filled<Value>(fields: Record<string, Value | null | "">): Record<string, Value> {
  const kept = Object.entries(fields).filter(([, value]) => value !== null && value !== "");
  return Object.fromEntries(kept) as Record<string, Value>;
}

const ADDRESS = /^(?:(\d+):)?(\d+\.\d+\.\d+\.\d+)$/;

/** `10.0.0.1` and `3:10.0.0.1` are addresses; the server tells what anything else is. */
export function hostsOf(text: string): Pick<Registration, "hosts" | "agent_id_list"> {
  const hosts: NonNullable<Registration["hosts"]> = [];
  const others: string[] = [];
  for (const each of splitHosts(text)) {
    const match = ADDRESS.exec(each);
    if (match?.[2]) hosts.push({ ip: match[2], bk_cloud_id: Number(match[1] ?? 0) });
    else others.push(each);
  }
  return { ...(hosts.length > 0 ? { hosts } : {}), ...(others.length > 0 ? { agent_id_list: others } : {}) };
}

export function labelsOf(text: string): Record<string, string> {
  const pairs = text
    .split(/[\n,]+/)
    .map((part) => part.trim())
    .filter(Boolean);
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf("=");
      return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
    }),
  );
}

type ConfigFiles = NonNullable<Registration["spec"]["configmap"]>;

/** After a space only what looks like an md5 is one: a path may have spaces, and needs no md5. */
const FILE = /^(.*)\t(.*)$|^(.*)\s([0-9a-f]{32})\s*$/i;

export function filesOf(text: string): ConfigFiles {
  const lines = text.split("\n").filter((line) => line.trim());
  return lines.map((line) => {
    const [, path, md5, pathBeforeSpace, md5AfterSpace] = FILE.exec(line) ?? [];
    return {
      path: (path ?? pathBeforeSpace ?? line).trim(),
      md5: (md5 ?? md5AfterSpace ?? "").trim(),
    };
  });
}

/** With tabs, so that it is read back as it was whatever stands in it. */
function filesToText(files: ConfigFiles): string {
  return files.map((file) => `${file.path}\t${file.md5}`).join("\n");
}

function labelsToText(labels: Record<string, string>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");
}

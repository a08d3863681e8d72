import type { ExactTarget, Operation, OperationRequest, Rolling } from "@/api/tasks";
import { operations } from "@/api/tasks";
import { loadPicked, pickedTargets } from "./picked";

/** What the form of the operate page holds; all of it is in the address. */
export type OperateForm = {
  operation: Operation;
  by: "process" | "selector" | "picked" | "matching" | "retry";
  process: string;
  selector: string;
  namespace: string;
  /** Rows of a list, as `PROCESS HOST`. */
  picked: string[];
  /** The name under which a tab keeps rows that are too many for an address. */
  pickedName: string;
  /** The filter of a list, as the query of its address; also an empty one. */
  match: string | null;
  /** The task whose failed targets are operated again. */
  retry: string;
  where: "all" | "business" | "hosts";
  business: number | null;
  hosts: string[];
  isRolling: boolean;
  maxParallel: string;
  maxFailures: number;
  canary: number;
  waitHealthy: boolean;
  /** How long targets wait for a host that is away; 0 where they fail. */
  waitSecs: number;
};

/** As long as the server lets a target wait. */
const WAIT_SECS_MAX = 3600;

export function parseForm(params: URLSearchParams): OperateForm {
  const text = (name: string) => params.get(name)?.trim() ?? "";
  const operation = operations.find((known) => known === text("op")) ?? "restart";
  const pickedName = text("picked");
  const picked = pickedName ? loadPicked(pickedName) : params.getAll("target");
  const match = params.get("match");
  const hosts = splitHosts(text("hosts"));
  const where = text("where");
  return {
    operation,
    by: byOf(params),
    process: text("process"),
    selector: text("selector"),
    namespace: text("namespace"),
    picked,
    pickedName,
    match,
    retry: text("retry"),
    where:
      hosts.length > 0 || where === "hosts"
        ? "hosts"
        : text("business") || where === "business"
          ? "business"
          : "all",
    business: text("business") ? Number(text("business")) : null,
    hosts,
    isRolling: params.has("parallel"),
    maxParallel: text("parallel") || "10%",
    maxFailures: Number(text("failures")) || 0,
    canary: Number(text("canary")) || 0,
    waitHealthy: text("healthy") === "1",
    waitSecs: Math.min(Math.max(Math.floor(Number(text("wait"))) || 0, 0), WAIT_SECS_MAX),
  };
}

function byOf(params: URLSearchParams): OperateForm["by"] {
  const has = (name: string) => Boolean(params.get(name)?.trim());
  if (has("retry")) return "retry";
  if (params.has("match")) return "matching";
  if (has("picked") || has("target")) return "picked";
  return has("selector") || params.get("by") === "selector" ? "selector" : "process";
}

export function splitHosts(text: string): string[] {
  return text.split(/[\s,;]+/).filter(Boolean);
}

/** What is asked of exact targets. */
export type Found = { operation: Operation; targets: ExactTarget[] };

/** The calls for targets that had to be looked up. */
export function requestsFor(form: OperateForm, found: Found[]): OperationRequest[] {
  const how = form.by === "retry" ? {} : howOf(form);
  return found.filter((each) => each.targets.length > 0).map((each) => ({ ...each, ...how }));
}

/** The call that the form stands for; none while something is missing. */
export function requestOf(form: OperateForm): OperationRequest | undefined {
  const base = { operation: form.operation, ...howOf(form) };
  if (form.by === "picked") {
    const targets = pickedTargets(form.picked);
    return targets.length > 0 ? { ...base, targets } : undefined;
  }
  if (form.by === "matching" || form.by === "retry") return undefined;
  const where = whereOf(form);
  if (!where) return undefined;
  if (form.by === "process") {
    return /^[^/]+\/.+/.test(form.process) ? { ...base, ...where, process: form.process } : undefined;
  }
  if (!form.selector) return undefined;
  return { ...base, ...where, selector: form.selector, namespace: form.namespace || undefined };
}

function whereOf(form: OperateForm): Pick<OperationRequest, "all" | "business" | "hosts"> | null {
  if (form.where === "all") return { all: true };
  if (form.where === "business") return form.business === null ? null : { business: form.business };
  return form.hosts.length > 0 ? { hosts: form.hosts } : null;
}

/** Whether targets of the form wait for hosts that are away; a status is that of now. */
export function waitOf({ operation, by, waitSecs }: OperateForm): number {
  return operation === "status" || by === "retry" ? 0 : waitSecs;
}

function howOf(form: OperateForm): Pick<OperationRequest, "rolling" | "wait_secs"> {
  return { rolling: form.isRolling ? rollingOf(form) : undefined, wait_secs: waitOf(form) || undefined };
}

function rollingOf(form: OperateForm): Rolling {
  const count = Number(form.maxParallel);
  return {
    max_parallel: Number.isInteger(count) && count > 0 ? count : form.maxParallel,
    max_failures: form.maxFailures,
    canary: form.canary,
    wait_healthy: form.waitHealthy,
  };
}

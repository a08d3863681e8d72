import { App, Checkbox, Form, Input, InputNumber, Select } from "antd";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { type PlannedPool, type Pool, planPools, setPools } from "@/api/server";
import { splitHosts } from "@/features/operate/request";
import { useMessages } from "@/settings/context";
import { takesEffect, useChangePlan } from "@/ui/change-plan";
import { required } from "@/ui/form-dialog";
import { useNumbers } from "@/ui/format";
import { PlanDialog } from "@/ui/plan-dialog";
import { useAction } from "@/ui/use-action";
import { useSettled } from "@/ui/use-settled";
import { PoolPlanView, poolFate } from "./pool-plan";

type Fields = {
  namespace: string;
  id: string;
  cpu: number | null;
  memory: number | null;
  cpu_weight: Pool["cpu_weight"];
  memory_weight: Pool["memory_weight"];
  dry_run: boolean;
  hosts: string;
};

type Draft = { setting: Schemas["PoolSetting"]; hosts: string[] };

/** What the form stands for; none while something is missing. */
function draftOf({
  hosts,
  cpu,
  memory,
  namespace = "",
  id = "",
  ...rest
}: Partial<Fields>): Draft | undefined {
  const { cpu_weight = "usage", memory_weight = "usage", dry_run = false } = rest;
  const name = namespace.trim();
  if (!name || typeof cpu !== "number" || typeof memory !== "number") return undefined;
  const setting = { namespace: name, id: id.trim() || name, cpu, memory, cpu_weight, memory_weight, dry_run };
  return { setting, hosts: splitHosts(hosts ?? "") };
}

const bodyOf = ({ setting, hosts }: Draft) =>
  hosts.length > 0 ? { hosts, pools: [setting] } : { all: true, pools: [setting] };

/** Typing does not ask the server at each key. */
const SETTLE_MS = 400;
const none: PlannedPool[] = [];

type Props = {
  /** The pool to change; a new one where there is none. */
  pool?: Pool;
  /** What is different from the start. */
  wish?: Partial<Pick<Fields, "dry_run">>;
  onClose: () => void;
};

/** Sets a pool on some hosts or on all, with the plan below the form. */
export function PoolDialog({ pool, wish, onClose }: Props) {
  const { pools: text, plans, terms } = useMessages();
  const { act } = useAction();
  const { message } = App.useApp();
  const number = useNumbers();
  const initial: Partial<Fields> = pool
    ? { ...fieldsOf(pool), ...wish }
    : { cpu: 50, memory: 50, cpu_weight: "usage", memory_weight: "usage", dry_run: true };
  const [fields, setFields] = useState(initial);
  const settled = useSettled(fields, SETTLE_MS);
  const draft = draftOf(settled);
  const query = useChangePlan(
    ["pools", draft],
    draft && (async (signal) => (await planPools(bodyOf(draft), signal)).pools),
  );
  const planned = draft ? (query.data ?? none) : none;
  const affected = planned.filter((row) => takesEffect(poolFate(row))).map((row) => row.host);
  const isPlanned =
    draft !== undefined &&
    settled === fields &&
    query.data !== undefined &&
    !query.isFetching &&
    !query.error;

  const save = async () => {
    if (!draft) return;
    const body = { hosts: affected, pools: [draft.setting] };
    const answer = await act(() => setPools(body), ["pools"]);
    const failed = answer?.rows.filter((row) => row.code !== 0) ?? [];
    const [first] = failed;
    if (first) void message.warning(`${text.failed(number(failed.length))}: ${terms.told(first)}`);
    if (answer) onClose();
  };
  return (
    <PlanDialog
      title={pool ? text.change(nameOf(pool)) : text.set}
      yes={plans.pool.setYes}
      count={affected.length}
      isPlanned={isPlanned}
      onYes={save}
      onClose={onClose}
    >
      <Form<Fields>
        layout="vertical"
        initialValues={initial}
        onValuesChange={(_, all) => setFields({ ...initial, ...all })}
      >
        <PoolFields isNew={pool === undefined} />
      </Form>
      <PoolPlanView query={query} setting={draft?.setting} hint={draft ? undefined : plans.pool.fill} />
    </PlanDialog>
  );
}

const nameOf = ({ namespace, id }: Pool) => (namespace === id ? id : `${namespace}/${id}`);

function fieldsOf({ namespace, id, cpu, memory, cpu_weight, memory_weight, dry_run, host }: Pool): Fields {
  return { namespace, id, cpu, memory, cpu_weight, memory_weight, dry_run: dry_run ?? false, hosts: host };
}

function PoolFields({ isNew }: { isNew: boolean }) {
  const { pools: text, terms } = useMessages();
  const weights = (["usage", "usage_by_limit"] as const).map((value) => ({
    value,
    label: terms.weight[value],
  }));
  const percent = <InputNumber min={0} max={100} suffix="%" style={{ width: "100%" }} />;
  return (
    <div className="pool-form">
      <Form.Item name="namespace" label={text.form.namespace} rules={required}>
        <Input disabled={!isNew} autoComplete="off" />
      </Form.Item>
      <Form.Item name="id" label={text.form.id} extra={isNew ? text.form.idHelp : undefined}>
        <Input disabled={!isNew} autoComplete="off" />
      </Form.Item>
      <Form.Item name="cpu" label={text.form.cpu}>
        {percent}
      </Form.Item>
      <Form.Item name="cpu_weight" label={text.form.cpuWeight}>
        <Select options={weights} />
      </Form.Item>
      <Form.Item name="memory" label={text.form.memory}>
        {percent}
      </Form.Item>
      <Form.Item name="memory_weight" label={text.form.memoryWeight}>
        <Select options={weights} />
      </Form.Item>
      <Form.Item name="hosts" label={text.form.hosts} extra={isNew ? text.form.hostsHelp : undefined}>
        <Input placeholder={text.form.allHosts} disabled={!isNew} autoComplete="off" />
      </Form.Item>
      <Form.Item name="dry_run" valuePropName="checked" label={text.dryRun}>
        <Checkbox>{text.dryRunLabel}</Checkbox>
      </Form.Item>
    </div>
  );
}

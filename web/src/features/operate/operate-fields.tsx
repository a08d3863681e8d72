import { useQuery } from "@tanstack/react-query";
import { AutoComplete, Checkbox, Form, Input, InputNumber, Radio, Select } from "antd";
import { Link } from "react-router";
import { businessesQuery } from "@/api/hosts";
import { fetchAll } from "@/api/paged";
import { fetchGroups } from "@/api/processes";
import { operations } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { formatSpan, useNumbers } from "@/ui/format";
import { shortTaskId, taskPath } from "@/ui/paths";
import { SettledInput } from "@/ui/settled-input";
import { type OperateForm, splitHosts } from "./request";

type Props = { form: OperateForm; set: (part: Record<string, string | undefined>) => void };

/** Names to choose from; any other may be typed. */
const NAMES_MAX = 2000;
const namesQuery = {
  queryKey: ["process-names"],
  queryFn: async () => {
    const { rows } = await fetchAll((after) => fetchGroups({}, "name", after), NAMES_MAX);
    return rows.map((group) => group.process);
  },
  staleTime: 30_000,
};

export function OperateFields({ form, set }: Props) {
  const { operate: text, terms } = useMessages();
  if (form.by === "retry") {
    return (
      <div className="panel panel-body operate-form">
        <p>
          {text.retryOf}{" "}
          <Link to={taskPath(form.retry)} className="mono">
            {shortTaskId(form.retry)}
          </Link>
        </p>
        <p className="muted">{text.retryHelp}</p>
      </div>
    );
  }
  return (
    <Form layout="vertical" component="div" className="panel operate-form">
      <Form.Item label={text.what} extra={terms.operationHelp[form.operation]}>
        <Select
          aria-label={text.what}
          value={form.operation}
          onChange={(op: string) => set({ op })}
          options={operations.map((value) => ({ value, label: terms.operation[value] }))}
        />
      </Form.Item>
      <WhatOf form={form} set={set} />
      {(form.by === "process" || form.by === "selector") && <Where form={form} set={set} />}
      <Pace form={form} set={set} />
      {form.operation !== "status" && <Absent form={form} set={set} />}
    </Form>
  );
}

function WhatOf({ form, set }: Props) {
  const { operate: text, processes } = useMessages();
  const number = useNumbers();
  const names = useQuery(namesQuery).data ?? [];
  const choose = (by: OperateForm["by"]) => {
    if (by === form.by) return;
    const none = { picked: undefined, target: undefined, match: undefined, process: undefined };
    set({ by, ...none, selector: undefined, namespace: undefined });
  };
  const ways = [
    { value: "process", label: text.byName },
    { value: "selector", label: text.bySelector },
  ];
  if (form.by === "picked") ways.push({ value: "picked", label: text.byPicked(number(form.picked.length)) });
  if (form.by === "matching") ways.push({ value: "matching", label: text.byMatching });
  return (
    <Form.Item label={text.whatOf}>
      <Radio.Group value={form.by} onChange={(event) => choose(event.target.value)} options={ways} />
      {form.by === "matching" && (
        <Link to={`/processes${form.match ? `?${form.match}` : ""}`} className="operate-input mono truncate">
          {form.match ? decodeURIComponent(form.match.replaceAll("+", " ")) : text.noFilter}
        </Link>
      )}
      {form.by === "process" && (
        <AutoComplete
          className="operate-input"
          aria-label={text.process}
          placeholder={text.processHelp}
          value={form.process}
          onChange={(process: string) => set({ process })}
          options={names.map((value) => ({ value }))}
          showSearch={{
            filterOption: (input, option) =>
              (option?.value ?? "").toLowerCase().includes(input.toLowerCase()),
          }}
        />
      )}
      {form.by === "selector" && (
        <div className="row operate-input">
          <SettledInput
            label={text.selector}
            hint={processes.filter.selectorHelp}
            value={form.selector}
            onChange={(selector) => set({ selector, by: "selector" })}
          />
          <SettledInput
            label={text.namespace}
            value={form.namespace}
            onChange={(namespace) => set({ namespace })}
          />
        </div>
      )}
    </Form.Item>
  );
}

function Where({ form, set }: Props) {
  const { operate: text } = useMessages();
  const businesses = useQuery(businessesQuery).data ?? [];
  return (
    <Form.Item label={text.where}>
      <Radio.Group
        className="operate-radios"
        value={form.where}
        onChange={(event) => set({ where: event.target.value, hosts: undefined, business: undefined })}
        options={[
          { value: "all", label: text.everywhere },
          { value: "business", label: text.ofBusiness },
          { value: "hosts", label: text.ofHosts },
        ]}
      />
      {form.where === "business" && (
        <Select
          className="operate-input"
          aria-label={text.ofBusiness}
          showSearch={{ optionFilterProp: "label" }}
          value={form.business === null ? undefined : String(form.business)}
          onChange={(business: string) => set({ business })}
          options={businesses.map((each) => ({ value: String(each.id), label: each.name }))}
        />
      )}
      {form.where === "hosts" && (
        <Input.TextArea
          className="operate-input mono"
          aria-label={text.hosts}
          placeholder={text.hostsHelp}
          rows={3}
          defaultValue={form.hosts.join(" ")}
          onBlur={(event) => set({ hosts: splitHosts(event.target.value).join(","), where: "hosts" })}
        />
      )}
    </Form.Item>
  );
}

function Pace({ form, set }: Props) {
  const { operate: text } = useMessages();
  const toggle = (isRolling: boolean) =>
    set(
      isRolling
        ? { parallel: "10%" }
        : { parallel: undefined, failures: undefined, canary: undefined, healthy: undefined },
    );
  return (
    <Form.Item label={text.how}>
      <Radio.Group
        value={form.isRolling}
        onChange={(event) => toggle(event.target.value)}
        options={[
          { value: false, label: text.atOnce },
          { value: true, label: text.rolling },
        ]}
      />
      {form.isRolling && (
        <div className="operate-rolling">
          <Labelled text={text.maxParallel} help={text.maxParallelHelp}>
            <SettledInput
              label={text.maxParallel}
              value={form.maxParallel}
              onChange={(parallel) => set({ parallel: parallel || "1" })}
            />
          </Labelled>
          <Labelled text={text.maxFailures}>
            <InputNumber
              aria-label={text.maxFailures}
              min={0}
              value={form.maxFailures}
              onChange={(value) => set({ failures: String(value ?? 0) })}
            />
          </Labelled>
          <Labelled text={text.canary} help={text.canaryHelp}>
            <InputNumber
              aria-label={text.canary}
              min={0}
              value={form.canary}
              onChange={(value) => set({ canary: String(value ?? 0) })}
            />
          </Labelled>
          <Checkbox
            checked={form.waitHealthy}
            onChange={(event) => set({ healthy: event.target.checked ? "1" : undefined })}
          >
            {text.waitHealthy}
          </Checkbox>
        </div>
      )}
    </Form.Item>
  );
}

const WAITS = [0, 300, 1800, 3600];

/** What becomes of targets whose host is away. */
function Absent({ form, set }: Props) {
  const { operate: text, common } = useMessages();
  const waits = WAITS.includes(form.waitSecs) ? WAITS : [...WAITS, form.waitSecs];
  return (
    <Form.Item label={text.absent} className="operate-absent">
      <Select
        aria-label={text.absent}
        value={form.waitSecs}
        onChange={(secs: number) => set({ wait: secs > 0 ? String(secs) : undefined })}
        options={waits.map((value) => ({
          value,
          label: value === 0 ? text.failAway : text.waitAway(formatSpan(value, common)),
        }))}
      />
    </Form.Item>
  );
}

function Labelled({ text, help, children }: { text: string; help?: string; children: React.ReactNode }) {
  return (
    <div>
      <div className="row">
        <span className="grow">{text}</span>
        {children}
      </div>
      {help && <div className="muted operate-help">{help}</div>}
    </div>
  );
}

import { Form, Input, InputNumber, Select } from "antd";
import type { ReactNode } from "react";
import type { Messages } from "@/messages";
import { useMessages } from "@/settings/context";
import { commandNames, type Draft, healthNumbers, type PolicyNumber, policyNumbers } from "./draft";

type Props = { draft: Draft; onChange: (draft: Draft) => void; isUpdate: boolean };
type FieldName = keyof Messages["register"]["field"];

/** Those of every process; the others go with its lifetime. */
const always = policyNumbers.filter((name) => name !== "cycle_time");

/** Every field with what it means, in the order in which one thinks of a process. */
export function FormFields({ draft, onChange, isUpdate }: Props) {
  const { register: text, terms } = useMessages();
  const { identity, control, policy, limits } = draft;
  const set = (part: Partial<Draft>) => onChange({ ...draft, ...part });
  const setPolicy = (part: Partial<Draft["policy"]>) => set({ policy: { ...policy, ...part } });
  const identityInput = (name: keyof Draft["identity"], isRequired = false) => (
    <Field key={name} name={name} isRequired={isRequired}>
      {(id) => (
        <Input
          id={id}
          className="mono"
          value={identity[name]}
          onChange={(event) => set({ identity: { ...identity, [name]: event.target.value } })}
        />
      )}
    </Field>
  );
  const policyInput = (name: PolicyNumber) => (
    <Field key={name} name={name}>
      {(id) => (
        <InputNumber
          id={id}
          min={0}
          value={policy.numbers[name]}
          onChange={(value) => setPolicy({ numbers: { ...policy.numbers, [name]: value } })}
        />
      )}
    </Field>
  );
  return (
    <Form layout="vertical" component="div" className="stack">
      <Group title={text.group.meta}>
        <Field name="namespace" isRequired>
          {(id) => (
            <Input
              id={id}
              value={draft.namespace}
              disabled={isUpdate}
              onChange={(event) => set({ namespace: event.target.value })}
            />
          )}
        </Field>
        <Field name="name" isRequired>
          {(id) => (
            <Input
              id={id}
              value={draft.name}
              disabled={isUpdate}
              onChange={(event) => set({ name: event.target.value })}
            />
          )}
        </Field>
        <Field name="hosts" isRequired isWide>
          {(id) => (
            <Input.TextArea
              id={id}
              className="mono"
              rows={2}
              value={draft.hosts}
              onChange={(event) => set({ hosts: event.target.value })}
            />
          )}
        </Field>
        <Field name="labels" isWide>
          {(id) => (
            <Input
              id={id}
              placeholder="env=prod, tier=web"
              value={draft.labels}
              onChange={(event) => set({ labels: event.target.value })}
            />
          )}
        </Field>
      </Group>
      <Group title={text.group.identity}>
        {identityInput("proc_name", true)}
        {identityInput("user", true)}
        {identityInput("setup_path", true)}
        {identityInput("pid_path", true)}
        {identityInput("config_path")}
        {identityInput("log_path")}
      </Group>
      <Group title={text.group.control}>
        {commandNames.map((name) => (
          <Field key={name} name={name} isWide>
            {(id) => (
              <Input
                id={id}
                className="mono"
                value={control[name]}
                onChange={(event) => set({ control: { ...control, [name]: event.target.value } })}
              />
            )}
          </Field>
        ))}
      </Group>
      <Group title={text.group.policy}>
        <Field name="auto_type" isWide>
          {(id) => (
            <Select
              id={id}
              value={policy.auto_type}
              onChange={(auto_type: number) => setPolicy({ auto_type })}
              options={[
                { value: 1, label: terms.lifetime.resident },
                { value: 0, label: terms.lifetime.periodic },
                { value: 2, label: terms.lifetime.once },
              ]}
            />
          )}
        </Field>
        {policy.auto_type === 0 && (
          <>
            <Field name="crontab_rule">
              {(id) => (
                <Input
                  id={id}
                  className="mono"
                  placeholder="*/5 * * * *"
                  value={policy.crontab_rule}
                  onChange={(event) => setPolicy({ crontab_rule: event.target.value })}
                />
              )}
            </Field>
            {policyInput("cycle_time")}
          </>
        )}
        {always.map(policyInput)}
      </Group>
      <Group title={text.group.limits}>
        {(["cpu", "mem", "fd"] as const).map((name) => (
          <Field key={name} name={name}>
            {(id) => (
              <InputNumber
                id={id}
                min={0}
                max={name === "fd" ? undefined : 100}
                value={limits[name]}
                onChange={(value) => set({ limits: { ...limits, [name]: value } })}
              />
            )}
          </Field>
        ))}
      </Group>
      <Group title={text.group.further}>
        <Field name="configmap" isWide>
          {(id) => (
            <Input.TextArea
              id={id}
              className="mono"
              rows={2}
              placeholder="/opt/web/nginx.conf d41d8cd98f00b204e9800998ecf8427e"
              value={draft.configmap}
              onChange={(event) => set({ configmap: event.target.value })}
            />
          )}
        </Field>
        <Field name="report_id">
          {(id) => (
            <InputNumber
              id={id}
              min={0}
              precision={0}
              value={draft.report_id}
              onChange={(report_id) => set({ report_id })}
            />
          )}
        </Field>
        {identityInput("index_key")}
        {(["disk", "net"] as const).map((name) => (
          <Field key={name} name={name}>
            {(id) => (
              <InputNumber
                id={id}
                min={0}
                value={limits[name]}
                onChange={(value) => set({ limits: { ...limits, [name]: value } })}
              />
            )}
          </Field>
        ))}
      </Group>
      {control.health_cmd && (
        <Group title={text.group.health}>
          {healthNumbers.map((name) => (
            <Field key={name} name={name}>
              {(id) => (
                <InputNumber
                  id={id}
                  min={0}
                  value={policy.health[name]}
                  onChange={(value) => setPolicy({ health: { ...policy.health, [name]: value } })}
                />
              )}
            </Field>
          ))}
        </Group>
      )}
    </Form>
  );
}

function Group({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="panel" aria-label={title}>
      <div className="panel-head">
        <h2>{title}</h2>
      </div>
      <div className="register-fields">{children}</div>
    </section>
  );
}

type FieldProps = {
  name: FieldName;
  isRequired?: boolean;
  isWide?: boolean;
  children: (id: string) => ReactNode;
};

function Field({ name, isRequired, isWide, children }: FieldProps) {
  const { register: text } = useMessages();
  const { label, help } = text.field[name];
  return (
    <Form.Item
      label={label}
      extra={help}
      required={isRequired}
      htmlFor={`field-${name}`}
      className={isWide ? "is-wide" : ""}
    >
      {children(`field-${name}`)}
    </Form.Item>
  );
}

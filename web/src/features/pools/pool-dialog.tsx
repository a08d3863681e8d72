import { useQuery } from "@tanstack/react-query";
import { App, Checkbox, Form, Input, InputNumber, Select } from "antd";
import { overviewQuery } from "@/api/overview";
import { type Pool, setPools } from "@/api/server";
import { splitHosts } from "@/features/operate/request";
import { useMessages } from "@/settings/context";
import { FormDialog, required } from "@/ui/form-dialog";
import { useNumbers } from "@/ui/format";
import { Failure } from "@/ui/states";
import { CONFIRM_ABOVE, isCount } from "@/ui/typed-count";
import { useAction } from "@/ui/use-action";

type Fields = {
  namespace: string;
  id: string;
  cpu: number;
  memory: number;
  cpu_weight: Pool["cpu_weight"];
  memory_weight: Pool["memory_weight"];
  dry_run: boolean;
  hosts: string;
  /** How many hosts, where they are many. */
  typed?: string;
};

/** Sets a pool on some hosts or on all. */
export function PoolDialog({ pool, onClose }: { pool?: Pool; onClose: () => void }) {
  const { pools: text, terms } = useMessages();
  const { act } = useAction();
  const { message } = App.useApp();
  const weights = (["usage", "usage_by_limit"] as const).map((value) => ({
    value,
    label: terms.weight[value],
  }));
  const initial: Partial<Fields> = pool
    ? { ...pool, hosts: pool.host }
    : { cpu: 50, memory: 50, cpu_weight: "usage", memory_weight: "usage", dry_run: true };

  const save = async ({ hosts, typed: _, ...setting }: Fields) => {
    const named = splitHosts(hosts ?? "");
    const where = named.length > 0 ? { hosts: named } : { all: true };
    const pools = [{ ...setting, id: setting.id || setting.namespace }];
    const answer = await act(() => setPools({ ...where, pools }), ["pools"]);
    const failed = answer?.rows.filter((row) => row.code !== 0) ?? [];
    const [first] = failed;
    if (first) void message.warning(`${text.failed(String(failed.length))}: ${terms.told(first)}`);
    return answer !== undefined;
  };
  return (
    <FormDialog title={text.set} initial={initial} onSave={save} onClose={onClose}>
      <Form.Item name="namespace" label={text.form.namespace} rules={required}>
        <Input disabled={pool !== undefined} />
      </Form.Item>
      <Form.Item name="id" label={text.form.id} extra={text.form.idHelp}>
        <Input disabled={pool !== undefined} />
      </Form.Item>
      <div className="row">
        <Form.Item name="cpu" label={text.form.cpu} className="grow">
          <InputNumber min={0} max={100} style={{ width: "100%" }} />
        </Form.Item>
        <Form.Item name="cpu_weight" label={text.form.cpuWeight} className="grow">
          <Select options={weights} />
        </Form.Item>
      </div>
      <div className="row">
        <Form.Item name="memory" label={text.form.memory} className="grow">
          <InputNumber min={0} max={100} style={{ width: "100%" }} />
        </Form.Item>
        <Form.Item name="memory_weight" label={text.form.memoryWeight} className="grow">
          <Select options={weights} />
        </Form.Item>
      </div>
      <Form.Item name="hosts" label={text.form.hosts} extra={text.form.hostsHelp}>
        <Input placeholder={text.form.allHosts} disabled={pool !== undefined} />
      </Form.Item>
      <Form.Item name="dry_run" valuePropName="checked">
        <Checkbox>{text.dryRunLabel}</Checkbox>
      </Form.Item>
      <TypedHosts />
    </FormDialog>
  );
}

/** The number of hosts, to be typed where they are many; nothing is saved before it is known how many they are. */
function TypedHosts() {
  const { operate } = useMessages();
  const number = useNumbers();
  const named = splitHosts(Form.useWatch<string | undefined>("hosts") ?? "").length;
  const overview = useQuery({ ...overviewQuery, enabled: named === 0, refetchInterval: false });
  const count = named || overview.data?.hosts.total;
  if (count !== undefined && count <= CONFIRM_ABOVE) return null;
  const isRight = (typed: string) => count !== undefined && isCount(typed, count);
  const rule = {
    validator: (_: unknown, typed = "") => (isRight(typed) ? Promise.resolve() : Promise.reject()),
    message: "",
  };
  const label = operate.typeCount(count === undefined ? "…" : number(count));
  return (
    <>
      {count === undefined && overview.error && (
        <Failure error={overview.error} onRetry={() => void overview.refetch()} />
      )}
      <Form.Item name="typed" label={label} required rules={[rule]}>
        <Input inputMode="numeric" autoComplete="off" disabled={count === undefined} />
      </Form.Item>
    </>
  );
}

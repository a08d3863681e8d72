import { useQuery } from "@tanstack/react-query";
import { Alert, Button, Form, Input, InputNumber, Modal, Select } from "antd";
import { useEffect, useState } from "react";
import { createJoinToken } from "@/api/access";
import { downloadsQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { CommandLine } from "@/ui/command-line";
import { required } from "@/ui/form-dialog";
import { useAction } from "@/ui/use-action";
import { relayLine } from "./relay-line";

type Fields = { cloud: number; uses: number; ttl: number; upstream: string; listen: string };

const HOUR = 3600;
const LISTEN = "0.0.0.0:9077";

/** Makes a token that only relays can use, and the line that starts one with it. */
export function RelayDialog({ onClose }: { onClose: () => void }) {
  const { relays, enrol, common } = useMessages();
  const { dialog: text } = relays;
  const { act } = useAction();
  const [form] = Form.useForm<Fields>();
  const [line, setLine] = useState<string | null>(null);
  const [isMaking, setMaking] = useState(false);
  const port = useQuery(downloadsQuery).data?.link_port;
  useEffect(() => {
    if (port && !form.isFieldTouched("upstream")) {
      form.setFieldValue("upstream", `${location.hostname}:${port}`);
    }
  }, [form, port]);
  const make = async ({ cloud, uses, ttl, upstream, listen }: Fields) => {
    if (isMaking) return;
    setMaking(true);
    const body = { relay: true, cloud_id: cloud, uses, ttl_secs: ttl };
    const made = await act(() => createJoinToken(body), ["join-tokens"]);
    setMaking(false);
    if (made) setLine(relayLine({ token: made.token, upstream, listen, cloud }));
  };
  return (
    <Modal
      open
      title={relays.add}
      width={640}
      onCancel={onClose}
      footer={
        line === null ? (
          <>
            <Button onClick={onClose}>{common.cancel}</Button>
            <Button type="primary" loading={isMaking} onClick={() => form.submit()}>
              {text.create}
            </Button>
          </>
        ) : (
          <Button type="primary" onClick={onClose}>
            {common.done}
          </Button>
        )
      }
    >
      {line === null ? (
        <Form
          form={form}
          layout="vertical"
          initialValues={{ uses: 2, ttl: HOUR, listen: LISTEN }}
          onFinish={(fields: Fields) => void make(fields)}
        >
          <div className="relay-fields">
            <Form.Item name="cloud" label={text.cloud} extra={text.cloudHelp} rules={required}>
              <InputNumber min={0} max={4_294_967_295} precision={0} style={{ width: "100%" }} />
            </Form.Item>
            <Form.Item name="uses" label={text.uses} extra={text.usesHelp} rules={required}>
              <InputNumber min={1} max={1000} precision={0} style={{ width: "100%" }} />
            </Form.Item>
            <Form.Item name="upstream" label={text.upstream} extra={text.upstreamHelp} rules={required}>
              <Input className="mono" placeholder={`${location.hostname}:9077`} />
            </Form.Item>
            <Form.Item name="listen" label={text.listen} extra={text.listenHelp} rules={required}>
              <Input className="mono" />
            </Form.Item>
            <Form.Item name="ttl" label={text.lifetime}>
              <Select
                options={[
                  { value: HOUR, label: enrol.hour },
                  { value: 24 * HOUR, label: enrol.day },
                  { value: 7 * 24 * HOUR, label: enrol.week },
                ]}
              />
            </Form.Item>
          </div>
        </Form>
      ) : (
        <div className="stack">
          <strong>{text.line}</strong>
          <CommandLine line={line} label={text.line} />
          <Alert type="warning" showIcon title={enrol.secretOnce} />
          <p className="muted flush">{text.lineHelp}</p>
          <p className="muted flush">{text.after}</p>
        </div>
      )}
    </Modal>
  );
}

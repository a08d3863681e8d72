import { Form, Input, Modal, Select } from "antd";
import { addWebhook } from "@/api/access";
import type { Schemas } from "@/api/client";
import { eventKinds } from "@/api/events";
import { useMessages } from "@/settings/context";
import { useAction } from "@/ui/use-action";

export function WebhookDialog({ onClose }: { onClose: () => void }) {
  const { webhooks: text, common, terms } = useMessages();
  const { act } = useAction();
  const [form] = Form.useForm<Schemas["NewWebhook"]>();
  const add = async (fields: Schemas["NewWebhook"]) => {
    const body = { ...fields, namespace: fields.namespace || undefined, secret: fields.secret || undefined };
    if (await act(() => addWebhook(body), ["webhooks"])) onClose();
  };
  return (
    <Modal
      open
      title={text.add}
      okText={text.add}
      cancelText={common.cancel}
      onCancel={onClose}
      onOk={() => form.submit()}
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={{ format: "native", types: [] }}
        onFinish={(fields) => void add(fields)}
      >
        <Form.Item name="url" label={text.form.url} rules={[{ required: true, message: "" }]}>
          <Input placeholder="https://alerts.example.com/proctor" />
        </Form.Item>
        <Form.Item name="types" label={text.form.types} extra={text.form.typesHelp}>
          <Select
            mode="multiple"
            options={eventKinds.map((kind) => ({ value: kind, label: terms.event[kind] }))}
          />
        </Form.Item>
        <Form.Item name="namespace" label={text.form.namespace}>
          <Input />
        </Form.Item>
        <Form.Item name="format" label={text.form.format}>
          <Select
            options={[
              { value: "native", label: text.native },
              { value: "gse", label: text.gse },
            ]}
          />
        </Form.Item>
        <Form.Item name="secret" label={text.form.secret} extra={text.form.secretHelp}>
          <Input.Password autoComplete="off" />
        </Form.Item>
      </Form>
    </Modal>
  );
}

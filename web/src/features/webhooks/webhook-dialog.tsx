import { Form, Input, Select } from "antd";
import { addWebhook } from "@/api/access";
import type { Schemas } from "@/api/client";
import { eventKinds } from "@/api/events";
import { useMessages } from "@/settings/context";
import { FormDialog, required } from "@/ui/form-dialog";
import { useAction } from "@/ui/use-action";

export function WebhookDialog({ onClose }: { onClose: () => void }) {
  const { webhooks: text, terms } = useMessages();
  const { act } = useAction();
  const add = async (fields: Schemas["NewWebhook"]) => {
    const body = { ...fields, namespace: fields.namespace || undefined, secret: fields.secret || undefined };
    return (await act(() => addWebhook(body), ["webhooks"])) !== undefined;
  };
  return (
    <FormDialog
      title={text.add}
      yes={text.add}
      initial={{ format: "native", types: [] }}
      onSave={add}
      onClose={onClose}
    >
      <Form.Item name="url" label={text.form.url} rules={required}>
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
    </FormDialog>
  );
}

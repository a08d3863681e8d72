import { Form, Modal } from "antd";
import { type ReactNode, useState } from "react";
import { useMessages } from "@/settings/context";

/** A field that must be filled in: its label is marked, the frame turns red, and no sentence moves the form. */
export const required = [{ required: true, message: "" }];

type Props<Fields extends object> = {
  title: string;
  /** What the button says; "Save" unless told. */
  yes?: string;
  initial?: Partial<Fields>;
  /** The dialog closes if it answers that it is done, and takes no second click until it answers. */
  onSave: (fields: Fields) => Promise<boolean>;
  onClose: () => void;
  children: ReactNode;
};

/** A form in a dialog. */
export function FormDialog<Fields extends object>(props: Props<Fields>) {
  const { title, yes, initial, onSave, onClose, children } = props;
  const { common } = useMessages();
  const [form] = Form.useForm<Fields>();
  const [isSaving, setSaving] = useState(false);
  const save = async (fields: Fields) => {
    if (isSaving) return;
    setSaving(true);
    const isDone = await onSave(fields).finally(() => setSaving(false));
    if (isDone) onClose();
  };
  return (
    <Modal
      open
      title={title}
      okText={yes ?? common.save}
      cancelText={common.cancel}
      confirmLoading={isSaving}
      onCancel={onClose}
      onOk={() => form.submit()}
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={initial}
        onFinish={(fields: Fields) => void save(fields)}
      >
        {children}
      </Form>
    </Modal>
  );
}

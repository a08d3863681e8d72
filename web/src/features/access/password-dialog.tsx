import { App, Form, Input, Modal } from "antd";
import { setPassword } from "@/api/access";
import { useMessages } from "@/settings/context";
import { useAction } from "@/ui/use-action";

type Fields = { password: string };

/** An administrator sets the password of a user. */
export function PasswordDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { access, common } = useMessages();
  const text = access.users;
  const { act } = useAction();
  const { message } = App.useApp();
  const [form] = Form.useForm<Fields>();
  const save = async ({ password }: Fields) => {
    const isDone = await act(async () => {
      await setPassword(name, password);
      return true;
    }, ["users"]);
    if (!isDone) return;
    void message.success(text.passwordSet);
    onClose();
  };
  return (
    <Modal
      open
      title={`${name}: ${text.newPassword}`}
      okText={common.save}
      cancelText={common.cancel}
      onCancel={onClose}
      onOk={() => form.submit()}
    >
      <Form form={form} layout="vertical" onFinish={(fields) => void save(fields)}>
        <Form.Item
          name="password"
          label={text.newPassword}
          extra={text.passwordHelp}
          rules={[{ required: true, min: 12, message: "" }]}
        >
          <Input.Password autoComplete="new-password" />
        </Form.Item>
      </Form>
    </Modal>
  );
}

import { App, Form, Input } from "antd";
import { setPassword } from "@/api/access";
import { useMessages } from "@/settings/context";
import { FormDialog } from "@/ui/form-dialog";
import { useAction } from "@/ui/use-action";

type Fields = { password: string };

/** An administrator sets the password of a user. */
export function PasswordDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { access } = useMessages();
  const text = access.users;
  const { act } = useAction();
  const { message } = App.useApp();
  const save = async ({ password }: Fields) => {
    const isDone = await act(async () => {
      await setPassword(name, password);
      return true;
    }, ["users"]);
    if (isDone) void message.success(text.passwordSet);
    return isDone === true;
  };
  return (
    <FormDialog title={`${name}: ${text.newPassword}`} onSave={save} onClose={onClose}>
      <Form.Item
        name="password"
        label={text.newPassword}
        extra={text.passwordHelp}
        rules={[{ required: true, min: 12, message: "" }]}
      >
        <Input.Password autoComplete="new-password" />
      </Form.Item>
    </FormDialog>
  );
}

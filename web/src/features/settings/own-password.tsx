import { App, Button, Form, Input } from "antd";
import { changePassword } from "@/api/session";
import { useMessages } from "@/settings/context";
import { Panel } from "@/ui/page";
import { useAction } from "@/ui/use-action";
import "./settings.css";

type Fields = { current: string; password: string };

export function OwnPassword() {
  const { settings: text, access } = useMessages();
  const { act } = useAction();
  const { message } = App.useApp();
  const [form] = Form.useForm<Fields>();
  const change = async ({ current, password }: Fields) => {
    const isDone = await act(async () => {
      await changePassword(current, password);
      return true;
    }, ["session"]);
    if (!isDone) return;
    form.resetFields();
    void message.success(text.changed);
  };
  return (
    <Panel title={text.password}>
      <Form
        className="panel-body password-form"
        layout="vertical"
        form={form}
        onFinish={(fields) => void change(fields)}
      >
        <Form.Item name="current" label={text.current} rules={[{ required: true, message: "" }]}>
          <Input.Password autoComplete="current-password" />
        </Form.Item>
        <Form.Item
          name="password"
          label={text.next}
          extra={access.users.passwordHelp}
          rules={[{ required: true, min: 12, message: "" }]}
        >
          <Input.Password autoComplete="new-password" />
        </Form.Item>
        <Form.Item label=" " className="password-submit">
          <Button htmlType="submit">{text.change}</Button>
        </Form.Item>
      </Form>
    </Panel>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Button, Form, Input, InputNumber, Select } from "antd";
import { useEffect } from "react";
import { createJoinToken } from "@/api/access";
import { businessesQuery, downloadsQuery } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { Guarded } from "@/ui/rights";
import { useAction } from "@/ui/use-action";
import type { Made } from "./enrol-page";

export type NewTokenFields = {
  cloud: number | null;
  business?: number;
  uses: number;
  ttl: number;
  address: string;
};

const HOUR = 3600;

type Props = { isMade: boolean; onMade: (made: Made) => void; onAgain: () => void };

export function TokenForm({ isMade, onMade, onAgain }: Props) {
  const { enrol: text } = useMessages();
  const { act } = useAction();
  const businesses = useQuery(businessesQuery).data ?? [];
  const make = async (fields: NewTokenFields) => {
    const token = await act(
      () =>
        createJoinToken({
          uses: fields.uses,
          ttl_secs: fields.ttl,
          cloud_id: fields.cloud,
          business: fields.business,
        }),
      ["join-tokens"],
    );
    if (token) onMade({ token, fields, at: Date.now() });
  };
  const port = useQuery(downloadsQuery).data?.link_port;
  const [form] = Form.useForm<NewTokenFields>();
  useEffect(() => {
    if (port && !form.isFieldTouched("address")) {
      form.setFieldValue("address", `${location.hostname}:${port}`);
    }
  }, [form, port]);
  return (
    <Form
      className="panel-body"
      layout="vertical"
      form={form}
      initialValues={{ uses: 1, ttl: HOUR, cloud: 0 }}
      onFinish={(fields: NewTokenFields) => void make(fields)}
      disabled={isMade}
    >
      <Form.Item name="cloud" label={text.cloud} extra={text.cloudHelp}>
        <InputNumber min={0} />
      </Form.Item>
      <Form.Item name="business" label={text.business} extra={text.businessHelp}>
        <Select
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          placeholder={text.noBusiness}
          options={businesses.map((business) => ({ value: business.id, label: business.name }))}
        />
      </Form.Item>
      <Form.Item
        name="uses"
        label={text.uses}
        extra={text.usesHelp}
        rules={[{ required: true, message: "" }]}
      >
        <InputNumber min={1} max={100_000} />
      </Form.Item>
      <Form.Item name="ttl" label={text.lifetime}>
        <Select
          options={[
            { value: HOUR, label: text.hour },
            { value: 24 * HOUR, label: text.day },
            { value: 7 * 24 * HOUR, label: text.week },
          ]}
        />
      </Form.Item>
      <Form.Item
        name="address"
        label={text.address}
        extra={text.addressHelp}
        rules={[{ required: true, message: "" }]}
      >
        <Input className="mono" placeholder={`${location.hostname}:9077`} />
      </Form.Item>
      {isMade ? (
        <Button disabled={false} onClick={onAgain}>
          {text.another}
        </Button>
      ) : (
        <Guarded need="admin">
          {(isAllowed) => (
            <Button type="primary" htmlType="submit" disabled={!isAllowed}>
              {text.make}
            </Button>
          )}
        </Guarded>
      )}
    </Form>
  );
}

import { TableOutlined } from "@ant-design/icons";
import { Button, Checkbox, Popover } from "antd";
import { useMessages } from "@/settings/context";

type Props = {
  value: string;
  onChange: (value: string) => void;
  options: { value: string; label: string }[];
};

/** Which columns a table shows; the choice is in the address. */
export function ColumnPicker({ value, onChange, options }: Props) {
  const { common } = useMessages();
  const content = (
    <Checkbox.Group
      className="column-picker"
      value={value.split(",")}
      onChange={(names) => onChange(names.length > 0 ? names.join(",") : "-")}
      options={options}
    />
  );
  return (
    <Popover content={content} trigger="click" placement="bottomRight">
      <Button icon={<TableOutlined />} aria-label={common.columns} title={common.columns} />
    </Popover>
  );
}

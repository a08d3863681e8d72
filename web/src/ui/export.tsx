import { DownloadOutlined } from "@ant-design/icons";
import { Button, Dropdown } from "antd";
import { useMessages } from "@/settings/context";
import { useNumbers } from "./format";

type Cell = string | number | boolean | null | undefined;

/** RFC 4180; a cell that a spreadsheet would take for a formula is marked as text. */
export function toCsv(header: string[], rows: Cell[][]): string {
  const quote = (cell: Cell) => {
    const text = cell === null || cell === undefined ? "" : String(cell);
    const safe = typeof cell === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [header, ...rows].map((row) => row.map(quote).join(",")).join("\r\n");
}

function download(name: string, type: string, text: string) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

type Props<Row extends object> = { name: string; rows: Row[]; columns: readonly (keyof Row & string)[] };

/** Saves the rows of a list: CSV of the named columns, or all of it as JSON. */
export function ExportButton<Row extends object>({ name, rows, columns }: Props<Row>) {
  const { common } = useMessages();
  const number = useNumbers();
  const csv = () => {
    const cells = rows.map((row) =>
      columns.map((column) => {
        const value: unknown = row[column];
        return typeof value === "object" && value !== null ? JSON.stringify(value) : (value as Cell);
      }),
    );
    download(`${name}.csv`, "text/csv;charset=utf-8", `\ufeff${toCsv([...columns], cells)}`);
  };
  const json = () => download(`${name}.json`, "application/json", JSON.stringify(rows, null, 2));
  const items = [
    { key: "csv", label: common.exportCsv, onClick: csv },
    { key: "json", label: common.exportJson, onClick: json },
    { key: "scope", label: common.exportScope(number(rows.length)), disabled: true },
  ];
  return (
    <Dropdown menu={{ items }} trigger={["click"]} disabled={rows.length === 0}>
      <Button icon={<DownloadOutlined />} aria-label={common.export} title={common.export} />
    </Dropdown>
  );
}

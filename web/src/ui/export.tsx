import { DownloadOutlined } from "@ant-design/icons";
import { App, Button, Dropdown } from "antd";
import { useState } from "react";
import { fetchAll, type Page } from "@/api/paged";
import { useMessages } from "@/settings/context";
import { useNumbers } from "./format";

/** A file of more rows than this is a case for the API. */
const ROWS_MAX = 200_000;

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

function save<Row extends object>(
  name: string,
  form: "csv" | "json",
  rows: Row[],
  columns: readonly string[],
) {
  if (form === "json") return download(`${name}.json`, "application/json", JSON.stringify(rows, null, 2));
  const cells = rows.map((row) =>
    columns.map((column) => {
      const value: unknown = row[column as keyof Row];
      return typeof value === "object" && value !== null ? JSON.stringify(value) : (value as Cell);
    }),
  );
  download(`${name}.csv`, "text/csv;charset=utf-8", `\ufeff${toCsv([...columns], cells)}`);
}

type Props<Row extends object> = {
  name: string;
  rows: Row[];
  columns: readonly (keyof Row & string)[];
  /** Reads the list page by page, where `rows` may be only its beginning. */
  fetchPage?: (after: string | null) => Promise<Page<Row>>;
};

/** Saves a list as it is filtered now: CSV of the named columns, or all of it as JSON. */
export function ExportButton<Row extends object>({ name, rows, columns, fetchPage }: Props<Row>) {
  const { common } = useMessages();
  const number = useNumbers();
  const { message } = App.useApp();
  const [isBusy, setBusy] = useState(false);
  const run = async (form: "csv" | "json") => {
    if (!fetchPage) return save(name, form, rows, columns);
    const tell = (count: number) =>
      void message.loading({ key: name, content: common.exporting(number(count)), duration: 0 });
    setBusy(true);
    tell(0);
    try {
      const all = await fetchAll(fetchPage, ROWS_MAX, tell);
      save(name, form, all.rows, columns);
      if (all.isComplete) message.destroy(name);
      else void message.warning({ key: name, content: common.exportCut(number(all.rows.length)) });
    } catch (error) {
      void message.error({ key: name, content: error instanceof Error ? error.message : String(error) });
    } finally {
      setBusy(false);
    }
  };
  const items = [
    { key: "csv", label: common.exportCsv, onClick: () => void run("csv") },
    { key: "json", label: common.exportJson, onClick: () => void run("json") },
    {
      key: "scope",
      label: fetchPage ? common.exportMatching : common.exportScope(number(rows.length)),
      disabled: true,
    },
  ];
  return (
    <Dropdown menu={{ items }} trigger={["click"]} disabled={rows.length === 0 || isBusy}>
      <Button icon={<DownloadOutlined />} loading={isBusy} aria-label={common.export} title={common.export} />
    </Dropdown>
  );
}

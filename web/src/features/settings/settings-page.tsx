import { useQuery } from "@tanstack/react-query";
import { Segmented } from "antd";
import { serverQuery, storageQuery } from "@/api/server";
import { useMessages, useSettings } from "@/settings/context";
import type { Language, ThemeChoice } from "@/settings/preferences";
import { formatBytes, useNumbers } from "@/ui/format";
import { Facts, Page, Panel } from "@/ui/page";
import { useRight, useSession } from "@/ui/rights";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, Skeleton } from "@/ui/states";
import { Time, TimeMs } from "@/ui/time";
import { OwnPassword } from "./own-password";

export function Component() {
  const { settings: text, shell } = useMessages();
  const { preferences, change } = useSettings();
  const session = useSession();
  const mayAdminister = useRight("admin");
  return (
    <Page title={text.title}>
      <Panel title={text.appearance} extra={<span className="muted">{text.kept}</span>}>
        <Facts
          isWide
          items={[
            [
              text.theme,
              <Segmented<ThemeChoice>
                key="theme"
                aria-label={text.theme}
                value={preferences.theme}
                onChange={(theme) => change({ theme })}
                options={[
                  { value: "system", label: shell.themeSystem },
                  { value: "light", label: shell.themeLight },
                  { value: "dark", label: shell.themeDark },
                ]}
              />,
            ],
            [
              text.language,
              <Segmented<Language>
                key="language"
                aria-label={text.language}
                value={preferences.language}
                onChange={(language) => change({ language })}
                options={[
                  { value: "en", label: "English" },
                  { value: "zh", label: "中文" },
                ]}
              />,
            ],
          ]}
        />
      </Panel>
      {session.user && <OwnPassword />}
      <ServerPanel />
      {mayAdminister && <StoragePanel />}
    </Page>
  );
}

function ServerPanel() {
  const { settings: text } = useMessages();
  const { data, error, isPending, refetch } = useQuery(serverQuery);
  return (
    <Panel title={text.server}>
      {isPending && <Skeleton lines={2} />}
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      {data && (
        <Facts
          items={[
            [text.version, data.version],
            [text.clock, <TimeMs key="clock" at={data.time_ms} form="clock" />],
            [text.linkCertificate, <Time key="certificate" at={data.link_certificate_expires_at} />],
          ]}
        />
      )}
    </Panel>
  );
}

function StoragePanel() {
  const { settings: text } = useMessages();
  const number = useNumbers();
  const { data, error, isPending, refetch } = useQuery(storageQuery);
  const sizes = data ? [text.total(formatBytes(data.bytes))] : [];
  if (data?.free_bytes != null) sizes.push(text.free(formatBytes(data.free_bytes)));
  return (
    <Panel title={text.storage} extra={data && <span className="muted">{sizes.join(" · ")}</span>}>
      {isPending && <Skeleton lines={6} />}
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      {data && (
        <SimpleTable
          label={text.storage}
          rows={data.tables}
          rowKey={(table) => table.table}
          columns={[
            {
              key: "table",
              title: text.table,
              render: (table) => <span className="mono">{table.table}</span>,
            },
            { key: "rows", title: text.rows, isNumber: true, render: (table) => number(table.rows) },
            { key: "bytes", title: text.size, isNumber: true, render: (table) => formatBytes(table.bytes) },
          ]}
        />
      )}
    </Panel>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Segmented, Select } from "antd";
import { historyQuery, splitProcess } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { JsonView } from "@/ui/json-view";
import { Failure, Skeleton } from "@/ui/states";
import { useUrlValue } from "@/ui/url-state";
import type { TabProps } from "./process-page";
import { SpecHistory } from "./spec-history";
import { SpecView } from "./spec-view";

/** What is registered on one host: readable, as JSON, and how it came to be. */
export default function SpecTab({ process, instances }: TabProps) {
  const { process: text } = useMessages();
  const [host, setHost] = useUrlValue("host", instances[0]?.host ?? "");
  const [view, setView] = useUrlValue("view", "form");
  const { namespace, name } = splitProcess(process);
  const history = useQuery(historyQuery(namespace, name, host));
  const instance = instances.find((each) => each.host === host) ?? instances[0];
  const variants = new Set(instances.map((each) => JSON.stringify(each.spec))).size;
  return (
    <div className="stack process-spec">
      <div className="filters is-short">
        <Segmented
          value={view}
          onChange={setView}
          options={[
            { value: "form", label: text.spec.form },
            { value: "json", label: text.spec.json },
            { value: "history", label: text.spec.history },
          ]}
        />
        <Select
          showSearch
          style={{ minWidth: 170 }}
          aria-label={text.spec.host}
          value={instance?.host}
          onChange={setHost}
          options={instances.map((each) => ({ value: each.host, label: each.host }))}
        />
        <span className="muted">{text.spec.variants(variants)}</span>
      </div>
      {view === "form" && instance?.spec && <SpecView spec={instance.spec} />}
      {view === "json" && <JsonView value={instance?.spec} label={text.tab.spec} />}
      {view === "history" && history.isPending && <Skeleton />}
      {view === "history" && history.error && !history.data && (
        <Failure error={history.error} onRetry={() => void history.refetch()} />
      )}
      {view === "history" && history.data && <SpecHistory revisions={history.data.revisions} />}
    </div>
  );
}

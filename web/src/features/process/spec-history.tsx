import { Select } from "antd";
import type { Schemas } from "@/api/client";
import { useMessages } from "@/settings/context";
import { DiffView } from "@/ui/diff-view";
import { Empty } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";

type Revision = Schemas["Revision"];

/** The revisions of a spec, any two of them side by side. */
export function SpecHistory({ revisions }: { revisions: Revision[] }) {
  const { process: text } = useMessages();
  const [from, setFrom] = useUrlValue("from", String(revisions[1]?.generation ?? ""));
  const [to, setTo] = useUrlValue("to", String(revisions[0]?.generation ?? ""));
  if (revisions.length < 2) return <Empty title={text.spec.firstOnly} />;
  const find = (generation: string) => revisions.find((each) => String(each.generation) === generation);
  const options = revisions.map((each) => ({
    value: String(each.generation),
    label: (
      <span>
        {text.spec.generation(each.generation)} · <Time at={each.at} />
        {each.spec ? "" : ` · ${text.spec.removed}`}
      </span>
    ),
  }));
  return (
    <div className="stack">
      <div className="filters is-short">
        <span>{text.spec.compare}</span>
        <Select
          style={{ minWidth: 230 }}
          aria-label={text.spec.compare}
          value={from}
          onChange={setFrom}
          options={options}
        />
        <span>{text.spec.compareWith}</span>
        <Select
          style={{ minWidth: 230 }}
          aria-label={text.spec.compareWith}
          value={to}
          onChange={setTo}
          options={options}
        />
      </div>
      <DiffView
        left={find(from)?.spec ?? null}
        right={find(to)?.spec ?? null}
        leftTitle={text.spec.generation(Number(from))}
        rightTitle={text.spec.generation(Number(to))}
      />
    </div>
  );
}

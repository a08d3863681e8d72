import { Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import { fetchAll } from "@/api/paged";
import { fetchProcesses, type Process, type ProcessFilter } from "@/api/processes";
import type { Operation } from "@/api/tasks";
import { keepPicked } from "@/features/operate/picked";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Guarded } from "@/ui/rights";
import { linkTo } from "@/ui/url-state";
import "./processes.css";

const SELECTED_MAX = 100_000;
const offered: Operation[] = ["restart", "start", "stop", "reload"];

type Props = {
  selected: ReadonlySet<string>;
  filter: ProcessFilter;
  onChange: (selected: Set<string>) => void;
  rowKey: (row: Process) => string;
};

/** What can be done with the selected rows; each button leads to the plan, nothing runs from here. */
export function BulkBar({ selected, filter, onChange, rowKey }: Props) {
  const { processes: text, terms, common } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const [found, setFound] = useState<number | null>(null);

  const selectMatching = async () => {
    setFound(0);
    try {
      const { rows } = await fetchAll((after) => fetchProcesses(filter, after, 1000), SELECTED_MAX, setFound);
      onChange(new Set(rows.map(rowKey)));
    } finally {
      setFound(null);
    }
  };
  const plan = (operation: Operation) => {
    const picked = keepPicked([...selected]);
    void navigate(linkTo("/operate", { op: operation, picked }));
  };

  return (
    <div className="bulk-bar" role="toolbar" aria-label={common.actions}>
      <strong>{found === null ? text.selected(number(selected.size)) : text.selecting(number(found))}</strong>
      <Button type="link" size="small" loading={found !== null} onClick={() => void selectMatching()}>
        {text.selectMatching}
      </Button>
      <Button type="link" size="small" onClick={() => onChange(new Set())}>
        {text.clearSelection}
      </Button>
      {offered.map((operation) => (
        <Guarded key={operation} need="operate">
          {(isAllowed) => (
            <Button size="small" disabled={!isAllowed} onClick={() => plan(operation)}>
              {terms.operation[operation]}…
            </Button>
          )}
        </Guarded>
      ))}
      <Button size="small" onClick={() => plan("status")}>
        {common.more}…
      </Button>
    </div>
  );
}

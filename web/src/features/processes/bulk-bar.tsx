import { App, Button } from "antd";
import { useState } from "react";
import { useNavigate } from "react-router";
import { fetchAll } from "@/api/paged";
import { fetchProcesses, type Process, type ProcessFilter } from "@/api/processes";
import type { Operation } from "@/api/tasks";
import { linkPicked } from "@/features/operate/picked";
import { MATCHING_MAX } from "@/features/operate/use-requests";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Guarded } from "@/ui/rights";
import { filterQuery } from "./filter";
import "./processes.css";

const offered: Operation[] = ["restart", "start", "stop", "reload"];

type Props = {
  selected: ReadonlySet<string>;
  filter: ProcessFilter;
  /** How many match, where it is known. */
  matching: number | undefined;
  onChange: (selected: Set<string>) => void;
  rowKey: (row: Process) => string;
};

/** What can be done with the selected rows; each button leads to the plan, nothing runs from here. */
export function BulkBar({ selected, filter, matching, onChange, rowKey }: Props) {
  const { processes: text, terms, common } = useMessages();
  const number = useNumbers();
  const navigate = useNavigate();
  const { message } = App.useApp();
  const [found, setFound] = useState<number | null>(null);
  /** The selection that is all that a filter matched. */
  const [matched, setMatched] = useState<{ selected: ReadonlySet<string>; filter: ProcessFilter } | null>(
    null,
  );

  const selectMatching = async () => {
    setFound(0);
    try {
      const fetchPage = (after: string | null) => fetchProcesses(filter, after, 1000);
      const { rows, isComplete } = await fetchAll(fetchPage, MATCHING_MAX, setFound);
      const all = new Set(rows.map(rowKey));
      onChange(all);
      setMatched(isComplete ? { selected: all, filter } : null);
      if (!isComplete) void message.warning(text.tooMany(number(rows.length)));
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    } finally {
      setFound(null);
    }
  };
  const plan = (operation: Operation) => {
    // All that match are named by the filter, which means the same to a colleague.
    const isAll = matched?.selected === selected && matched.filter === filter;
    const query = isAll ? new URLSearchParams({ match: filterQuery(filter) }) : linkPicked([...selected]);
    query.set("op", operation);
    void navigate(`/operate?${query}`);
  };

  return (
    <div className="bulk-bar" role="toolbar" aria-label={common.actions}>
      <strong>{found === null ? text.selected(number(selected.size)) : text.selecting(number(found))}</strong>
      <Button type="link" size="small" loading={found !== null} onClick={() => void selectMatching()}>
        {text.selectMatching(matching === undefined ? "" : number(matching))}
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

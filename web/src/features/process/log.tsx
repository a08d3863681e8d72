import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Button, Select, Switch } from "antd";
import { useEffect, useRef } from "react";
import { logQuery, type ReadLog, splitProcess } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { formatBytes } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { placeOf, useRight } from "@/ui/rights";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { type PickedInstance, useInstancePicker } from "./instance-picker";
import { plainText } from "./log-text";
import type { TabProps } from "./process-page";

const lineCounts = [50, 200, 1000];

/** The end of the process's own log on one host, as the host reads it. */
export default function Log({ process, instances }: TabProps) {
  const { states, terms } = useMessages();
  const { namespace } = splitProcess(process);
  const picked = useInstancePicker(instances);
  const { host, chosen, picker } = picked;
  const mayRead = useRight("operate", placeOf(namespace, { host, business: chosen?.business }));
  if (mayRead) return <HostLog process={process} picked={picked} />;
  return (
    <section className="stack process-log-tab">
      <div className="filters is-short">{picker}</div>
      <Empty title={states.forbiddenTitle}>
        <p>{states.forbidden(terms.right.operate)}</p>
      </Empty>
    </section>
  );
}

function HostLog({ process, picked }: { process: string; picked: PickedInstance }) {
  const { process: text, common } = useMessages();
  const { host, instance, picker } = picked;
  const [wanted, setLines] = useUrlValue("lines", "200");
  const [follow, setFollow] = useUrlValue("follow", "on");
  const lines = lineCounts.find((each) => String(each) === wanted) ?? 200;
  const isFollowing = follow === "on";
  const client = useQueryClient();
  const { namespace, name } = splitProcess(process);
  const query = useQuery(logQuery(client, { namespace, name, host, lines, instance }, isFollowing));
  return (
    <section className="stack process-log-tab" aria-label={text.tab.log}>
      <div className="filters is-short">
        {picker}
        <Select
          aria-label={text.logLines}
          value={String(lines)}
          onChange={setLines}
          options={lineCounts.map((each) => ({ value: String(each), label: text.logLast(each) }))}
        />
        <span className="row">
          <Switch
            size="small"
            aria-label={text.logFollow}
            checked={isFollowing}
            onChange={(isOn) => setFollow(isOn ? "on" : "off")}
          />
          <span>{text.logFollow}</span>
        </span>
        {!isFollowing && (
          <Button size="small" loading={query.isFetching} onClick={() => void query.refetch()}>
            {common.refresh}
          </Button>
        )}
        {isFollowing && <Freshness updatedAt={query.dataUpdatedAt} />}
      </div>
      {query.isPending && <Skeleton lines={14} />}
      {query.error && !query.data && (
        <Failure error={query.error} need="operate" onRetry={() => void query.refetch()} />
      )}
      {query.data && <Text log={query.data} isFollowing={isFollowing} />}
    </section>
  );
}

function Text({ log, isFollowing }: { log: ReadLog; isFollowing: boolean }) {
  const { process: text } = useMessages();
  const area = useRef<HTMLPreElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new text is what moves the end
  useEffect(() => {
    if (isFollowing && area.current) area.current.scrollTop = area.current.scrollHeight;
  }, [isFollowing, log.text]);
  const { answer } = log;
  const problem = answer.state === "read" ? undefined : text.logState[answer.state];
  if (problem && log.text === "") {
    return (
      <Empty title={problem}>
        {answer.path && <CopyText text={answer.path} />}
        {answer.problem && <p>{answer.problem}</p>}
      </Empty>
    );
  }
  return (
    <>
      <p className="row wrap process-log">
        <CopyText text={log.path} />
        <span className="muted">{formatBytes(log.size)}</span>
        {log.modifiedAt !== undefined && (
          <span className="muted">
            {text.logWritten} <Time at={log.modifiedAt} />
          </span>
        )}
      </p>
      {problem && (
        <p className="tone-warning" role="status">
          {problem} {text.logStale}
        </p>
      )}
      {log.gap && <p className="muted">{text.logGap[log.gap]}</p>}
      {log.text === "" ? (
        <Empty title={text.logEmpty} />
      ) : (
        <pre
          ref={area}
          className="log-text"
          role="log"
          aria-live="off"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
          tabIndex={0}
          aria-label={text.tab.log}
        >
          {plainText(log.text)}
        </pre>
      )}
    </>
  );
}

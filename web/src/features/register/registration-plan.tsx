import { useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button } from "antd";
import { useDeferredValue, useState } from "react";
import { useNavigate } from "react-router";
import { ApiError, type Schemas } from "@/api/client";
import { planRegistration, type Registration, register } from "@/api/processes";
import { ofNote } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { useNumbers } from "@/ui/format";
import { processPath } from "@/ui/paths";
import { Badge } from "@/ui/phase";
import { Guarded } from "@/ui/rights";
import { useTypedCount } from "@/ui/typed-count";
import { isPlannable } from "./draft";

type HostChange = Schemas["RegistrationChange"];

/** What saving would change on each host, asked for while one types; and the button that saves. */
export function RegistrationPlan({ registration }: { registration: Registration | null }) {
  const { register: text, common } = useMessages();
  const deferred = useDeferredValue(registration);
  const isReady = deferred !== null && isComplete(deferred);
  const query = useQuery({
    queryKey: ["registration-plan", deferred],
    queryFn: async ({ signal }) => {
      await new Promise((resolve) => setTimeout(resolve, 350));
      if (!deferred || signal.aborted) throw new Error("not wanted any more");
      return planRegistration(deferred, signal);
    },
    enabled: isReady,
    retry: false,
    staleTime: 0,
    gcTime: 0,
    placeholderData: (before) => before,
    refetchOnWindowFocus: false,
  });
  // Until the plan of this text is there, that of the text before stays on the screen, but is not saved by.
  const isCurrent = deferred === registration && !query.isPlaceholderData;
  return (
    <aside className="panel register-plan" aria-label={text.plan}>
      <div className="panel-head">
        <h2 className="grow">{text.plan}</h2>
        {query.isFetching && <span className="muted">{text.planning}</span>}
      </div>
      <div className="panel-body stack">
        {!isReady && <p className="muted">{text.planIncomplete}</p>}
        {isReady && query.error && (
          <div className="tone-failed" role="alert">
            <p>{query.error.message}</p>
            {query.error instanceof ApiError && query.error.requestId && (
              <p>
                {common.requestId}: <CopyText text={query.error.requestId} />
              </p>
            )}
          </div>
        )}
        {isReady && query.data && !query.error && (
          <>
            {groupChanges(query.data.hosts).map((group) => (
              <ChangeGroup key={group.hosts[0]?.host} hosts={group.hosts} />
            ))}
            <SaveButton
              registration={deferred}
              hosts={query.data.hosts}
              process={query.data.process}
              isPlanned={isCurrent}
            />
          </>
        )}
      </div>
    </aside>
  );
}

/** JSON that somebody types may lack any part. */
function isComplete(registration: Registration): boolean {
  try {
    return isPlannable(registration);
  } catch {
    return false;
  }
}

/** Hosts on which the same would happen, together. */
function groupChanges(hosts: HostChange[]): { hosts: HostChange[] }[] {
  const groups = new Map<string, HostChange[]>();
  for (const host of hosts) {
    const key = JSON.stringify([host.registered, host.changes, host.refused?.code, host.note]);
    const group = groups.get(key);
    if (group) group.push(host);
    else groups.set(key, [host]);
  }
  return [...groups.values()].map((each) => ({ hosts: each }));
}

function ChangeGroup({ hosts }: { hosts: HostChange[] }) {
  const { register: text, process, terms } = useMessages();
  const number = useNumbers();
  const first = hosts[0];
  if (!first) return null;
  const show = (value: unknown) =>
    value == null ? "∅" : typeof value === "string" ? value : JSON.stringify(value);
  return (
    <div className="change-group">
      <div className="row wrap">
        {first.refused ? (
          <Badge tone="failed">{text.refused}</Badge>
        ) : !first.registered ? (
          <Badge tone="running">{text.isNew}</Badge>
        ) : first.changes.length > 0 ? (
          <Badge tone="changing">{text.changed(first.changes.length)}</Badge>
        ) : (
          <Badge tone="idle">{text.unchanged}</Badge>
        )}
        <span className="mono truncate">
          {hosts.length > 3 ? process.hosts(number(hosts.length)) : hosts.map((host) => host.host).join(", ")}
        </span>
      </div>
      {first.refused && <p className="tone-failed">{terms.told(first.refused)}</p>}
      {first.note && <p className="tone-warning">{terms.told(ofNote(first))}</p>}
      {first.registered && first.changes.length > 0 && (
        <dl className="changes">
          {first.changes.map((change) => (
            <div key={change.path}>
              <dt className="mono">{change.path}</dt>
              <dd>
                <del title={text.was}>{show(change.from)}</del>
                <ins title={text.becomes}>{show(change.to)}</ins>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}

type SaveProps = {
  registration: Registration;
  hosts: HostChange[];
  process: string;
  /** What is shown is the plan of this registration. */
  isPlanned: boolean;
};

function SaveButton({ registration, hosts, process, isPlanned }: SaveProps) {
  const { register: text, terms } = useMessages();
  const number = useNumbers();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { message } = App.useApp();
  const [isSaving, setSaving] = useState(false);
  const count = hosts.filter((host) => !host.refused && (!host.registered || host.changes.length > 0)).length;
  const isNew = hosts.every((host) => !host.registered);
  const { isConfirmed, field } = useTypedCount(count);

  const save = async () => {
    setSaving(true);
    try {
      const { rows } = await register(registration, !isNew);
      const failed = rows.filter((row) => row.code !== 0);
      const [first] = failed;
      if (first) {
        void message.warning(`${text.someFailed(number(failed.length))}: ${first.host} ${terms.told(first)}`);
      } else void message.success(text.saved);
      await client.invalidateQueries({ queryKey: ["process"] });
      await navigate(processPath(process, "spec"));
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    } finally {
      setSaving(false);
    }
  };
  return (
    <>
      {field}
      <Guarded need="register">
        {(isAllowed) => (
          <Button
            type="primary"
            block
            disabled={!isAllowed || !isPlanned || !isConfirmed || count === 0}
            loading={isSaving}
            onClick={() => void save()}
          >
            {count === 0
              ? text.nothingToDo
              : isNew
                ? text.register(number(count))
                : text.update(number(count))}
          </Button>
        )}
      </Guarded>
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "react-router";
import { type Process, processQuery, splitProcess } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { Page } from "@/ui/page";
import { Empty, Failure, Skeleton } from "@/ui/states";
import { type Draft, draftOf, emptyDraft, registrationOf } from "./draft";
import { Editor } from "./editor";
import { RegistrationPlan } from "./registration-plan";
import { registrationFrom, type Source } from "./source";
import "./register.css";

/** A new process, or with `?process=` a change of one that is registered. */
export function Component() {
  const {
    register: text,
    processes,
    process: { notRegistered },
  } = useMessages();
  const [params] = useSearchParams();
  const process = params.get("process") ?? "";
  const { namespace, name } = splitProcess(process || "/");
  const query = useQuery({
    ...processQuery(namespace, name),
    enabled: process !== "",
    refetchInterval: false,
  });
  const title = process ? text.editTitle(process) : text.title;
  const start = useMemo(
    () => startOf(process, query.data, params.get("host")),
    [process, query.data, params],
  );
  return (
    <Page title={title} crumbs={[{ label: processes.title, to: "/processes" }]}>
      {query.error && !start && <Failure error={query.error} onRetry={() => void query.refetch()} />}
      {query.isSuccess && query.data.length === 0 && <Empty title={notRegistered} />}
      {!start && query.isPending && <Skeleton lines={14} />}
      {start && <Form key={process} start={start} isUpdate={process !== ""} />}
    </Page>
  );
}

function startOf(process: string, instances: Process[] | undefined, host: string | null): Draft | null {
  if (!process) return emptyDraft;
  const spec = (instances?.find((each) => each.host === host) ?? instances?.[0])?.spec;
  return instances && spec ? draftOf(instances, spec) : null;
}

function Form({ start, isUpdate }: { start: Draft; isUpdate: boolean }) {
  const [draft, setDraft] = useState(start);
  const [source, setSource] = useState<Source | null>(null);
  const { registration, problem } = useMemo(() => {
    if (source === null) return { registration: registrationOf(draft), problem: "" };
    try {
      return { registration: registrationFrom(source), problem: "" };
    } catch (error) {
      return { registration: null, problem: error instanceof Error ? error.message : String(error) };
    }
  }, [draft, source]);
  return (
    <div className="register">
      <Editor
        draft={draft}
        onDraft={setDraft}
        source={source}
        onSource={setSource}
        problem={problem}
        isUpdate={isUpdate}
      />
      <RegistrationPlan registration={registration} />
    </div>
  );
}

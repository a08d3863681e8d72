import { CheckOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Button } from "antd";
import { type Authority, authorityQuery, type RotationStep, rotationSteps } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { ExportButton } from "@/ui/export";
import { useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Facts, Page, Panel } from "@/ui/page";
import { Badge, type Tone } from "@/ui/phase";
import { Guarded } from "@/ui/rights";
import { SimpleTable } from "@/ui/simple-table";
import { Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { useUrlValue } from "@/ui/url-state";
import { BehindTable } from "./behind-table";
import { StepDialog } from "./step-dialog";
import "./authority.css";

type Phase = Authority["phase"];

const tones: Record<Phase, Tone> = { idle: "running", prepared: "changing", switched: "changing" };

/** The step that leads on from a phase. */
const nextOf = { idle: "prepare", prepared: "switch", switched: "finish" } as const;

/** Which authority is believed, and how far its rotation has come. */
export function Component() {
  const { authority: text } = useMessages();
  const query = useQuery(authorityQuery);
  const [shown, setShown] = useUrlValue("do");
  const authority = query.data;
  const step = rotationSteps.find((known) => known === shown);
  return (
    <Page
      title={text.title}
      beside={
        authority && (
          <>
            <Badge tone={tones[authority.phase]}>{text.phase[authority.phase]}</Badge>
            <Freshness updatedAt={query.dataUpdatedAt} expectedMs={60_000} />
          </>
        )
      }
      actions={authority && <Actions phase={authority.phase} onStep={setShown} />}
    >
      <p className="muted flush">{text.text}</p>
      {query.isPending && <Skeleton lines={10} />}
      {query.error && !authority && (
        <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
      )}
      {authority && (
        <>
          <Steps phase={authority.phase} />
          <AuthorityFacts authority={authority} />
          {authority.phase !== "idle" && <Followers authority={authority} />}
          {authority.phase !== "idle" && <Behind authority={authority} />}
        </>
      )}
      {authority && step && mayTake(step, authority.phase) && (
        <StepDialog step={step} authority={authority} onClose={() => setShown(undefined)} />
      )}
    </Page>
  );
}

const mayTake = (step: RotationStep, phase: Phase) =>
  step === "abort" ? phase !== "idle" : nextOf[phase] === step;

function Actions({ phase, onStep }: { phase: Phase; onStep: (step: RotationStep) => void }) {
  const { authority: text } = useMessages();
  return (
    <Guarded need="admin">
      {(isAllowed) => (
        <span className="row wrap">
          {phase !== "idle" && (
            <Button disabled={!isAllowed} onClick={() => onStep("abort")}>
              {text.act.abort}
            </Button>
          )}
          <Button type="primary" disabled={!isAllowed} onClick={() => onStep(nextOf[phase])}>
            {text.act[nextOf[phase]]}
          </Button>
        </span>
      )}
    </Guarded>
  );
}

/** The three steps of a rotation: which are done, and what the next one does. */
function Steps({ phase }: { phase: Phase }) {
  const { authority: text } = useMessages();
  const order = ["prepare", "switch", "finish"] as const;
  const next = order.indexOf(nextOf[phase]);
  return (
    <ol className="authority-steps">
      {order.map((step, index) => (
        <li
          key={step}
          className={`panel${index < next ? " is-done" : index === next ? " is-next" : ""}`}
          aria-current={index === next ? "step" : undefined}
        >
          <div className="row">
            <strong className="grow">{text.step[step]}</strong>
            {index < next && (
              <span className="tone-running">
                <CheckOutlined /> {text.done}
              </span>
            )}
            {index === next && <span className="muted">{text.next}</span>}
          </div>
          <p className="muted flush">{text.stepText[step]}</p>
        </li>
      ))}
    </ol>
  );
}

function AuthorityFacts({ authority }: { authority: Authority }) {
  const { authority: text } = useMessages();
  const number = useNumbers();
  const items: [string, React.ReactNode][] = [
    [text.fingerprint, <CopyText key="current" text={authority.fingerprint} />],
  ];
  if (authority.successor_fingerprint) {
    items.push([text.successor, <CopyText key="successor" text={authority.successor_fingerprint} />]);
  }
  if (authority.prepared_at) items.push([text.preparedAt, <Time key="at" at={authority.prepared_at} />]);
  items.push([
    text.openTokens,
    <span key="tokens" title={text.openTokensHelp}>
      {number(authority.open_tokens)}
    </span>,
  ]);
  return (
    <div className="panel">
      <Facts items={items} isWide />
      <p className="muted flush authority-note">
        {text.openTokensHelp} {text.backup}
      </p>
    </div>
  );
}

function Followers({ authority }: { authority: Authority }) {
  const { authority: text } = useMessages();
  const number = useNumbers();
  const rows = (["agents", "relays"] as const).map((kind) => ({ kind, ...authority[kind] }));
  return (
    <Panel title={text.followers}>
      <SimpleTable
        label={text.followers}
        rows={rows}
        rowKey={(row) => row.kind}
        columns={[
          { key: "kind", title: text.column.kind, render: (row) => text[row.kind] },
          { key: "total", title: text.column.total, isNumber: true, render: (row) => number(row.total) },
          {
            key: "trust",
            title: text.column.trust,
            isNumber: true,
            render: (row) => number(row.trust_successor),
          },
          {
            key: "certificate",
            title: text.column.certificate,
            isNumber: true,
            render: (row) => number(row.new_certificate),
          },
        ]}
      />
    </Panel>
  );
}

/** Whom the next step would cut off. */
function Behind({ authority }: { authority: Authority }) {
  const { authority: text } = useMessages();
  const number = useNumbers();
  if (authority.behind_total === 0) return <p className="tone-running flush">{text.whole}</p>;
  return (
    <Panel
      title={text.behind(number(authority.behind_total))}
      extra={
        <>
          {authority.behind_total > authority.behind.length && (
            <span className="muted">{text.behindCut(number(authority.behind.length))}</span>
          )}
          <ExportButton
            name="behind"
            rows={authority.behind}
            columns={["host", "relay", "why", "version", "trusts_successor", "has_new_certificate"]}
          />
        </>
      }
    >
      <BehindTable rows={authority.behind} />
    </Panel>
  );
}

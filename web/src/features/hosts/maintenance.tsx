import { ToolOutlined } from "@ant-design/icons";
import { Button, Form, Input, Modal, Select } from "antd";
import { useState } from "react";
import { approveHost, cordonHost, type Host, uncordonHost } from "@/api/hosts";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { Guarded } from "@/ui/rights";
import { Time } from "@/ui/time";
import { useAction } from "@/ui/use-action";

const HOSTS = ["hosts"];
const HOUR = 3600;
const UNTIL_ENDED = 0;
const spans = [HOUR, 4 * HOUR, 24 * HOUR, 7 * 24 * HOUR, UNTIL_ENDED];

const placeOf = (host: Host) => ({ business: host.business, cloud: host.cloud });

/** Begins maintenance, where none is under way. */
export function MaintenanceButton({ host }: { host: Host }) {
  const { hosts: text } = useMessages();
  const [isOpen, setOpen] = useState(false);
  if (host.cordon) return null;
  return (
    <Guarded need="operate" place={placeOf(host)}>
      {(isAllowed) => (
        <>
          <Button icon={<ToolOutlined />} disabled={!isAllowed} onClick={() => setOpen(true)}>
            {text.maintenance.begin}
          </Button>
          {isOpen && <CordonDialog host={host} onClose={() => setOpen(false)} />}
        </>
      )}
    </Guarded>
  );
}

/** What is special about the host now: it waits to be let in, or is in maintenance. */
export function HostNotes({ host }: { host: Host }) {
  return (
    <>
      {host.awaits_approval && <Approval host={host} />}
      {host.cordon && <Cordon host={host} cordon={host.cordon} />}
    </>
  );
}

function Cordon({ host, cordon }: { host: Host; cordon: NonNullable<Host["cordon"]> }) {
  const { hosts, common } = useMessages();
  const { maintenance: text } = hosts;
  const { ask } = useAction();
  const end = () =>
    ask(
      { title: `${host.host}: ${text.end}`, text: text.endText, yes: text.end },
      () => uncordonHost(host.host),
      HOSTS,
    );
  return (
    <div className="host-note" role="status">
      <ToolOutlined aria-hidden />
      <span className="grow">
        <strong>{text.title}</strong> · {cordon.reason}{" "}
        <span className="muted">
          ({text.by(cordon.by)} <Time at={cordon.since} />,{" "}
          {cordon.until ? (
            <>
              {text.ends} <Time at={cordon.until} />
            </>
          ) : (
            text.untilEnded
          )}
          ) {text.effect}
        </span>
      </span>
      <Guarded need="operate" place={placeOf(host)}>
        {(isAllowed) => (
          <Button size="small" disabled={!isAllowed} onClick={end} aria-label={`${text.end} ${common.host}`}>
            {text.end}
          </Button>
        )}
      </Guarded>
    </div>
  );
}

function Approval({ host }: { host: Host }) {
  const { hosts } = useMessages();
  const { approval: text } = hosts;
  return (
    <div className="host-note" role="status">
      <span className="grow">
        <strong>{text.title}</strong> · {text.key} <CopyText text={host.key_fingerprint ?? ""} />
      </span>
      <ApproveButton host={host} />
    </div>
  );
}

/** Lets a new host in, after a look at its key. */
export function ApproveButton({ host }: { host: Host }) {
  const { hosts } = useMessages();
  const { approval: text } = hosts;
  const { ask } = useAction();
  const approve = () =>
    ask(
      { title: `${host.host}: ${text.approve}`, text: text.text, yes: text.approve },
      () => approveHost(host.host, host.key_fingerprint),
      HOSTS,
    );
  return (
    <Guarded need="admin" place={placeOf(host)}>
      {(isAllowed) => (
        <Button
          size="small"
          type="primary"
          disabled={!isAllowed}
          onClick={approve}
          aria-label={`${text.approve} ${host.host}`}
        >
          {text.approve}
        </Button>
      )}
    </Guarded>
  );
}

function CordonDialog({ host, onClose }: { host: Host; onClose: () => void }) {
  const { hosts, common } = useMessages();
  const { maintenance: text } = hosts;
  const { act } = useAction();
  const [reason, setReason] = useState("");
  const [secs, setSecs] = useState(HOUR);
  const [isSaving, setSaving] = useState(false);
  const save = async () => {
    setSaving(true);
    const done = await act(() => cordonHost(host.host, reason.trim(), secs || null), HOSTS);
    setSaving(false);
    if (done) onClose();
  };
  return (
    <Modal
      open
      title={`${host.host}: ${text.begin}`}
      okText={text.beginDo}
      okButtonProps={{ disabled: reason.trim() === "" }}
      confirmLoading={isSaving}
      cancelText={common.cancel}
      onCancel={onClose}
      onOk={() => void save()}
    >
      <Form layout="vertical" component="div">
        <p className="muted">{text.effect}</p>
        <Form.Item label={text.reason} required>
          <Input
            aria-label={text.reason}
            maxLength={200}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
          />
        </Form.Item>
        <Form.Item label={text.span}>
          <Select
            aria-label={text.span}
            value={secs}
            onChange={setSecs}
            options={spans.map((value) => ({
              value,
              label: value === UNTIL_ENDED ? text.untilEnded : spanOf(value, common),
            }))}
          />
        </Form.Item>
      </Form>
    </Modal>
  );
}

function spanOf(secs: number, common: ReturnType<typeof useMessages>["common"]): string {
  return secs < 48 * HOUR ? common.hours(secs / HOUR) : common.days(secs / HOUR / 24);
}

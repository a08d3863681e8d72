import { Input } from "antd";
import { useEffect, useState } from "react";
import { useMessages } from "@/settings/context";
import { LAST_SECS, useSetUrl, useUrlTime } from "./url-state";

/** As a field of the browser wants it: by the viewer's clock, without a zone. */
function fieldOf(secs: number | undefined): string {
  if (secs === undefined) return "";
  const at = new Date(secs * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function secsOf(field: string): number | undefined {
  const at = Math.floor(new Date(field).getTime() / 1000);
  return at >= 0 && at <= LAST_SECS ? at : undefined;
}

/** From when until when, as `since` and `until` in the address; either may be open. */
export function TimeRange() {
  const { common } = useMessages();
  return (
    <>
      <TimeField name="since" label={common.timeFrom} />
      <span className="muted">–</span>
      <TimeField name="until" label={common.timeUntil} />
    </>
  );
}

/** Somebody who types 2026 passes by the year 2: such a time stays in the field and does not reach the address. */
function TimeField({ name, label }: { name: "since" | "until"; label: string }) {
  const set = useSetUrl();
  const kept = fieldOf(useUrlTime(name));
  const [typed, setTyped] = useState(kept);
  useEffect(() => setTyped(kept), [kept]);
  const change = (field: string) => {
    setTyped(field);
    const secs = secsOf(field);
    if (secs !== undefined || field === "") set({ [name]: secs });
  };
  return (
    <Input
      type="datetime-local"
      style={{ width: 190 }}
      aria-label={label}
      title={label}
      value={typed}
      onChange={(event) => change(event.target.value)}
      onBlur={() => setTyped(kept)}
    />
  );
}

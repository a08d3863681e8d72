import { Input } from "antd";
import { useMessages } from "@/settings/context";
import { useSetUrl, useUrlNumber } from "./url-state";

/** As a field of the browser wants it: by the viewer's clock, without a zone. */
function fieldOf(secs: number | undefined): string {
  if (secs === undefined) return "";
  const at = new Date(secs * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function secsOf(field: string): number | undefined {
  const at = Math.floor(new Date(field).getTime() / 1000);
  return Number.isFinite(at) && at >= 0 ? at : undefined;
}

/** From when until when, as `since` and `until` in the address; either may be open. */
export function TimeRange() {
  const { common } = useMessages();
  const set = useSetUrl();
  const field = (name: "since" | "until", label: string, value: number | undefined) => (
    <Input
      type="datetime-local"
      style={{ width: 190 }}
      aria-label={label}
      title={label}
      value={fieldOf(value)}
      onChange={(event) => set({ [name]: secsOf(event.target.value) })}
    />
  );
  return (
    <>
      {field("since", common.timeFrom, useUrlNumber("since"))}
      <span className="muted">–</span>
      {field("until", common.timeUntil, useUrlNumber("until"))}
    </>
  );
}

import { formatPercent } from "./format";
import "./meter.css";

type Props = { value: number; limit?: number | null; label: string };

/** A figure with a bar against its limit; without a limit the bar is against the whole host. */
export function Meter({ value, limit, label }: Props) {
  const full = limit ?? 100;
  const share = full > 0 ? value / full : 1;
  const tone = limit != null && share >= 1 ? "over" : limit != null && share >= 0.8 ? "near" : "fine";
  const text = limit == null ? formatPercent(value) : `${formatPercent(value)} / ${formatPercent(limit)}`;
  return (
    <span className="meter" title={`${label}: ${text}`}>
      <span className="meter-text">{formatPercent(value)}</span>
      <span className="meter-track" aria-hidden="true">
        <span className={`meter-fill meter-${tone}`} style={{ width: `${Math.min(100, share * 100)}%` }} />
      </span>
    </span>
  );
}

import { useMessages } from "@/settings/context";
import { formatRelative } from "./format";
import { useNow } from "./time";

const EXPECTED_MS = 20_000;

/** Says how old the figures are once they are older than expected. */
export function Freshness({ updatedAt }: { updatedAt: number }) {
  const { common } = useMessages();
  const now = useNow();
  if (updatedAt === 0 || now - updatedAt < EXPECTED_MS) return null;
  return <span className="tone-warning">{common.updated(formatRelative(updatedAt, now, common))}</span>;
}

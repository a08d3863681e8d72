import { useMessages } from "@/settings/context";
import { formatRelative } from "./format";
import { useNow } from "./time";

const EXPECTED_MS = 20_000;

type Props = { updatedAt: number; expectedMs?: number };

/** Says how old the figures are once they are older than expected. */
export function Freshness({ updatedAt, expectedMs = EXPECTED_MS }: Props) {
  const { common } = useMessages();
  const now = useNow();
  if (updatedAt === 0 || now - updatedAt < expectedMs) return null;
  return <span className="tone-warning">{common.updated(formatRelative(updatedAt, now, common))}</span>;
}

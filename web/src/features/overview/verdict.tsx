import type { Overview } from "@/api/overview";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Badge } from "@/ui/phase";

/** The answer to "is anything wrong?", in one line. */
export function Verdict({ data }: { data: Overview }) {
  const { overview: text } = useMessages();
  const number = useNumbers();
  if (data.hosts.total === 0) return null;
  const isCritical = data.attention.some((each) => each.severity === "critical");
  const isWell = data.attention.every((each) => each.severity === "notice");
  if (isWell) return <Badge tone="running">{text.allWell}</Badge>;
  return (
    <Badge tone={isCritical ? "failed" : "warning"}>{text.troubles(number(data.attention_total))}</Badge>
  );
}

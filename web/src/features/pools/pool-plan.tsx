import type { Schemas } from "@/api/client";
import type { PlannedPool } from "@/api/server";
import { useMessages } from "@/settings/context";
import { changeFate, type useChangePlan } from "@/ui/change-plan";
import { ChangePlanView } from "@/ui/change-plan-view";
import { formatPercent, useNumbers } from "@/ui/format";
import { Badge } from "@/ui/phase";
import type { Resource } from "./ranking";

type Setting = Schemas["PoolSetting"];

/** A pool that is there and stays as it is; of one that the viewer may not read, nobody knows. */
export const poolFate = (row: PlannedPool) => changeFate(row, row.set === true && row.changes.length === 0);

/** The resources whose new limit the members exceed already. */
export function overOf(row: PlannedPool, setting: Setting | undefined): Resource[] {
  const { usage } = row;
  if (!usage || !setting || row.refused) return [];
  const over: Resource[] = [];
  if (usage.cpu_percent > setting.cpu) over.push("cpu");
  if (usage.memory_percent > setting.memory) over.push("memory");
  return over;
}

type Props = {
  query: ReturnType<typeof useChangePlan<PlannedPool>>;
  /** What is set; none where the pool is deleted. */
  setting?: Setting;
  hint?: string;
};

/** What a change of a pool would do on each host, and where it would evict somebody at once. */
export function PoolPlanView({ query, setting, hint }: Props) {
  const { plans, pools: text } = useMessages();
  const number = useNumbers();
  const over = (query.data ?? []).filter((row) => overOf(row, setting).length > 0).length;
  return (
    <ChangePlanView
      query={query}
      hint={hint}
      fateOf={poolFate}
      columns={[
        {
          key: "members",
          title: plans.pool.members,
          width: "84px",
          isNumber: true,
          from: 420,
          render: (row) => row.usage?.members ?? "",
        },
        {
          key: "cpu",
          title: text.cpu,
          width: "72px",
          isNumber: true,
          from: 420,
          render: (row) => (row.usage ? formatPercent(row.usage.cpu_percent) : ""),
        },
        {
          key: "memory",
          title: text.memory,
          width: "72px",
          isNumber: true,
          from: 420,
          render: (row) => (row.usage ? formatPercent(row.usage.memory_percent) : ""),
        },
      ]}
      would={(row) => <Would row={row} setting={setting} />}
      sums={over > 0 && <Badge tone="failed">{plans.pool.overSum(number(over))}</Badge>}
      exported={["host", "set", "online", "usage", "changes", "refused"]}
    />
  );
}

function Would({ row, setting }: { row: PlannedPool; setting?: Setting }) {
  const { plans, pools: text, terms, common } = useMessages();
  if (!setting) return plans.pool.deleted;
  const show = (value: unknown) => {
    if (value === null || value === undefined) return "–";
    if (typeof value === "boolean") return value ? common.yes : common.no;
    if (typeof value === "number") return formatPercent(value);
    return value === "usage" || value === "usage_by_limit" ? terms.weight[value] : String(value);
  };
  const name = (path: string) => text.field[path as keyof typeof text.field] ?? path;
  const changes = row.changes.map(({ path, from, to }) => `${name(path)} ${show(from)} → ${show(to)}`);
  const over = overOf(row, setting).map((resource) => {
    const used = resource === "cpu" ? row.usage?.cpu_percent : row.usage?.memory_percent;
    return plans.pool.over(text[resource], formatPercent(used ?? 0), formatPercent(setting[resource]));
  });
  const what = row.set === false ? plans.pool.isNew : changes.join(", ");
  const outcome = setting.dry_run ? plans.pool.reports : plans.pool.evicts;
  const told = over.length > 0 ? `${over.join(", ")}: ${outcome}` : "";
  return (
    <span title={[what, told].filter(Boolean).join(" · ")}>
      {told && <span className={setting.dry_run ? "tone-warning" : "tone-failed"}>{told} · </span>}
      {what}
    </span>
  );
}

import { Link } from "react-router";
import type { UpgradePlan } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { hostPath } from "@/ui/paths";
import { SimpleTable } from "@/ui/simple-table";

type Ring = UpgradePlan["rings"][number];

/** What keeps a host from being upgraded, in the order of the columns. */
const hindrances = ["current", "away", "too_old", "without_build", "newer"] as const;

/** How many hosts of a ring would get the new version now. */
export const upgradedIn = (ring: Ring) =>
  hindrances.reduce((rest, hindrance) => rest - (ring[hindrance] ?? 0), ring.hosts.length);

const SHOWN = 3;

/** What would happen, ring by ring; what concerns nobody has no column. */
export function UpgradePlanView({ plan, isOutdated }: { plan: UpgradePlan; isOutdated: boolean }) {
  const { upgrades, plans } = useMessages();
  const { plan: text } = upgrades;
  const number = useNumbers();
  const rows = plan.rings.map((ring, index) => ({ ...ring, number: index + 1 }));
  const present = hindrances.filter((hindrance) => rows.some((ring) => (ring[hindrance] ?? 0) > 0));
  const help = {
    current: "",
    away: text.awayHelp,
    too_old: text.tooOldHelp,
    without_build: text.withoutBuildHelp,
    newer: text.newerHelp,
  };
  return (
    <section className={isOutdated ? "change-plan is-planning" : "change-plan"} aria-label={plans.title}>
      <div className="panel">
        <SimpleTable
          label={plans.title}
          rows={rows}
          rowKey={(ring) => String(ring.number)}
          columns={[
            { key: "ring", title: text.ring, isNumber: true, render: (ring) => number(ring.number) },
            { key: "hosts", title: text.hosts, isNumber: true, render: (ring) => number(ring.hosts.length) },
            {
              key: "upgraded",
              title: text.upgraded,
              isNumber: true,
              render: (ring) => <strong>{number(upgradedIn(ring))}</strong>,
            },
            ...present.map((hindrance) => ({
              key: hindrance,
              title: text[hindrance],
              isNumber: true,
              render: (ring: Ring) => {
                const count = ring[hindrance] ?? 0;
                return (
                  <span className={count > 0 && hindrance !== "current" ? "tone-warning" : "muted"}>
                    {number(count)}
                  </span>
                );
              },
            })),
            { key: "first", title: text.first, isMinor: true, render: (ring) => <First ring={ring} /> },
          ]}
        />
      </div>
      {present.map(
        (hindrance) =>
          help[hindrance] && (
            <p key={hindrance} className="muted flush">
              {text[hindrance]}: {help[hindrance]}
            </p>
          ),
      )}
    </section>
  );
}

function First({ ring }: { ring: Ring }) {
  const { upgrades } = useMessages();
  const number = useNumbers();
  const more = ring.hosts.length - SHOWN;
  return (
    <span className="upgrade-first">
      {ring.hosts.slice(0, SHOWN).map((host) => (
        <Link key={host} to={hostPath(host)} className="mono">
          {host}
        </Link>
      ))}
      {more > 0 && <span className="muted">{upgrades.plan.more(number(more))}</span>}
    </span>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";
import { type Upgrade, type UpgradeRingProgress, upgradeQuery } from "@/api/fleet";
import { ofReason } from "@/messages/told";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { formatSpan, useNumbers } from "@/ui/format";
import { Freshness } from "@/ui/freshness";
import { Facts, Page, Panel } from "@/ui/page";
import { Failure, Skeleton } from "@/ui/states";
import { Time } from "@/ui/time";
import { UpgradeActions } from "./upgrade-actions";
import { UpgradeHosts } from "./upgrade-hosts";
import { hostStates, hostTones, sumOf, totalOf, UpgradeState } from "./upgrade-state";
import "./upgrades.css";

/** One upgrade: ring by ring, host by host. */
export function Component() {
  const { id = "" } = useParams();
  const { upgrades: text } = useMessages();
  const query = useQuery(upgradeQuery(id));
  const crumbs = [{ label: text.title, to: "/upgrades" }];
  const upgrade = query.data;
  if (!upgrade) {
    return (
      <Page title={id.slice(0, 8)} crumbs={crumbs}>
        {query.isPending ? (
          <Skeleton lines={10} />
        ) : (
          <Failure error={query.error} need="admin" onRetry={() => void query.refetch()} />
        )}
      </Page>
    );
  }
  const rings = upgrade.progress ?? [];
  const sum = sumOf(rings);
  const isBusy = upgrade.state === "running" || sum.upgrading > 0;
  return (
    <Page
      title={text.one(upgrade.version)}
      crumbs={crumbs}
      isFilled
      beside={
        <>
          <UpgradeState state={upgrade.state} />
          {isBusy && <Freshness updatedAt={query.dataUpdatedAt} />}
        </>
      }
      actions={<UpgradeActions upgrade={upgrade} waiting={sum.waiting} />}
    >
      <Reason upgrade={upgrade} />
      <UpgradeFacts upgrade={upgrade} />
      <Rings rings={rings} />
      <UpgradeHosts id={upgrade.id} counts={sum} isBusy={isBusy} />
    </Page>
  );
}

/** Why it is paused or over. */
function Reason({ upgrade }: { upgrade: Upgrade }) {
  const { terms } = useMessages();
  if (!upgrade.reason) return null;
  const tone = upgrade.state === "failed" ? "is-failed" : "is-warning";
  return (
    <p className={`upgrade-reason ${tone}`} role="status">
      {terms.told(ofReason(upgrade))}
    </p>
  );
}

function UpgradeFacts({ upgrade }: { upgrade: Upgrade }) {
  const { upgrades: text, common } = useMessages();
  const number = useNumbers();
  return (
    <div className="panel">
      <Facts
        items={[
          [text.fact.id, <CopyText key="id" text={upgrade.id} />],
          [text.fact.by, upgrade.created_by],
          [text.fact.started, <Time key="started" at={upgrade.created_at} />],
          [text.fact.changed, <Time key="changed" at={upgrade.changed_at} />],
          [text.fact.deadline, formatSpan(upgrade.health_deadline_secs, common)],
          [text.fact.maxFailures, number(upgrade.max_failures)],
          [text.fact.downgrade, upgrade.allow_downgrade ? text.fact.allowed : text.fact.refused],
        ]}
      />
    </div>
  );
}

/** A bar for each ring: what is done, failed, skipped, at it, and still to come. */
function Rings({ rings }: { rings: readonly UpgradeRingProgress[] }) {
  const { upgrades: text } = useMessages();
  const number = useNumbers();
  return (
    <Panel title={text.rings}>
      <ol className="upgrade-rings">
        {rings.map((ring, index) => {
          const total = totalOf(ring);
          const over = ring.done + ring.failed + ring.skipped;
          const present = hostStates.filter((state) => ring[state] > 0);
          const parts = present.map((state) => `${text.host[state]} ${number(ring[state])}`);
          const name = text.ring(number(index + 1));
          return (
            // biome-ignore lint/suspicious/noArrayIndexKey: a ring is its number
            <li key={index}>
              <strong>{name}</strong>
              <span className="muted">{text.ringOf(number(over), number(total))}</span>
              <span className="upgrade-bar" role="img" aria-label={`${name}: ${parts.join(", ")}`}>
                {(["done", "failed", "skipped", "upgrading"] as const).map((state) => (
                  <span
                    key={state}
                    className={`fill-${hostTones[state]}`}
                    style={{ width: `${total > 0 ? (100 * ring[state]) / total : 0}%` }}
                  />
                ))}
              </span>
              <span className="upgrade-counts">
                {present.map((state) => (
                  <span key={state} className={`tone-${hostTones[state]}`}>
                    {text.host[state]} {number(ring[state])}
                  </span>
                ))}
              </span>
            </li>
          );
        })}
      </ol>
      <p className="muted upgrades-note">{text.ringsHelp}</p>
    </Panel>
  );
}

//! Upgrades of agents over the link; only for administrators of everything: a build is root on every host.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_api::{
    BuildList, BuildView, CountOrPercent, NewUpgrade, UpgradeDetail, UpgradeHostQuery, UpgradeHostState,
    UpgradeHostView, UpgradeList, UpgradePlanView, UpgradeRing, UpgradeRingProgress, UpgradeState, UpgradeView,
};
use proctor_model::{AgentVersion, FieldError, Message, Phrase, messages};
use proctor_runtime::clock;
use proctor_store::{HostQuery, HostRecord, Upgrade, UpgradeBuild, UpgradeCount, UpgradeHost, UpgradePlan};
use uuid::Uuid;

use super::body::{Body, Params, bounded};
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts::{Chosen, unknown_host};
use super::{ApiState, Result};
use crate::builds::Build;
use crate::control::{Caller, Control, UpgradeProgress, UpgradeWish};

const RINGS_MAX: usize = 20;
const PAGE_MAX: u32 = 1000;
const DEADLINE_SECS: std::ops::RangeInclusive<u64> = 10..=3600;

/// The agent programs that the server holds: those of its download directory, by what is in the files.
#[utoipa::path(get, path = "/builds", operation_id = "builds", tag = "hosts",
               responses((status = 200, body = BuildList)))]
pub(super) async fn builds(_: Authenticated, State(state): State<ApiState>) -> Result<Json<BuildList>> {
    let builds = state.control.builds().await.iter().map(|build| build_view(build)).collect();
    Ok(Json(BuildList { builds }))
}

/// What an upgrade would do. Nothing changes.
#[utoipa::path(post, path = "/upgrades/plan", operation_id = "plan_upgrade", request_body = NewUpgrade, tag = "hosts",
               responses((status = 200, body = UpgradePlanView)))]
pub(super) async fn plan(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewUpgrade>,
) -> Result<Json<UpgradePlanView>> {
    let Planned { plan, hosts, builds, fates } = planned(&state.control, &caller.who, body).await?;
    let mut rings = vec![UpgradeRing::default(); plan.rings.len()];
    for (host, fate) in hosts.iter().zip(fates) {
        let Some(ring) = rings.get_mut(host.ring as usize) else { continue };
        ring.hosts.push(host.host.to_string());
        match fate {
            Fate::Upgraded => {}
            Fate::Away => ring.away += 1,
            Fate::Current => ring.current += 1,
            Fate::TooOld => ring.too_old += 1,
            Fate::WithoutBuild => ring.without_build += 1,
            Fate::Newer => ring.newer += 1,
        }
    }
    Ok(Json(UpgradePlanView {
        version: plan.version,
        builds: builds.iter().map(|build| build_view(build)).collect(),
        rings,
        health_deadline_secs: plan.health_deadline_secs,
        max_failures: plan.failures_max,
        allow_downgrade: plan.allow_downgrade,
    }))
}

/// Starts an upgrade of agents, ring by ring. One at a time.
#[utoipa::path(post, path = "/upgrades", operation_id = "start_upgrade", request_body = NewUpgrade, tag = "hosts",
               responses((status = 201, body = UpgradeView)))]
pub(super) async fn start(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewUpgrade>,
) -> Result<(StatusCode, Json<UpgradeView>)> {
    let Planned { plan, hosts, .. } = planned(&state.control, &caller.who, body).await?;
    let now = clock::unix_millis();
    let upgrade = Upgrade {
        id: Uuid::now_v7(),
        plan,
        state: proctor_store::UpgradeState::Running,
        reason: Message::default(),
        created_by: caller.who.name().into_text(),
        makers: caller.who.subjects.clone(),
        created_at: now,
        changed_at: now,
    };
    let digests: Vec<&str> = upgrade.plan.builds.iter().map(|build| build.sha256.as_str()).collect();
    let what = format!(
        "version {} ({}) on {} hosts, upgrade {}",
        upgrade.plan.version,
        digests.join(", "),
        hosts.len(),
        upgrade.id
    );
    let begun = upgrade.clone();
    let targets: Vec<String> = std::iter::once(what).chain(hosts.iter().map(|host| host.host.to_string())).collect();
    let work = async move |control: Control| control.begin_upgrade(begun, hosts).await;
    let audit_result = |begun: &std::result::Result<(), Uuid>| match begun {
        Ok(()) => "begun".to_owned(),
        Err(other) => format!("refused: upgrade {other} is in progress"),
    };
    if let Err(other) = state.control.administer(&caller.who, "start_upgrade", targets, work, audit_result).await? {
        let message = messages::upgrade_is_not_over(other);
        return Err(NativeError::new(Kind::Conflict, message));
    }
    Ok((StatusCode::CREATED, Json(view(upgrade))))
}

/// The last upgrades, newest first.
#[utoipa::path(get, path = "/upgrades", operation_id = "upgrades", tag = "hosts",
               responses((status = 200, body = UpgradeList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<UpgradeList>> {
    let upgrades = state.control.upgrades().await?.into_iter().map(view).collect();
    Ok(Json(UpgradeList { upgrades }))
}

/// One upgrade: how far each ring is, and the state of its hosts.
#[utoipa::path(get, path = "/upgrades/{id}", operation_id = "upgrade", params(("id" = String, Path)),
               params(UpgradeHostQuery), tag = "hosts", responses((status = 200, body = UpgradeDetail)))]
pub(super) async fn show(
    _: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
    Params(query): Params<UpgradeHostQuery>,
) -> Result<Json<UpgradeDetail>> {
    if let Some(limit) = query.limit {
        bounded("limit", limit.into(), PAGE_MAX.into())?;
    }
    let wanted = proctor_store::UpgradeHostQuery {
        state: query.state.map(stored_state),
        after: query.after,
        limit: query.limit.map(|limit| limit + 1),
    };
    let found = state.control.upgrade_progress(parse_id(&id)?, wanted).await?;
    let UpgradeProgress { upgrade, mut hosts, counts } = found.ok_or_else(|| unknown(&id))?;
    let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
    let has_more = hosts.len() > limit;
    hosts.truncate(limit);
    let next = hosts.last().filter(|_| has_more).map(|(place, _)| *place);
    let progress = progress(upgrade.plan.rings.len(), &counts);
    let hosts = hosts.into_iter().map(|(_, host)| host_view(host)).collect();
    Ok(Json(UpgradeDetail { upgrade: view(upgrade), progress, hosts, next }))
}

fn stored_state(state: UpgradeHostState) -> proctor_store::UpgradeHostState {
    use proctor_store::UpgradeHostState as Stored;
    match state {
        UpgradeHostState::Waiting => Stored::Waiting,
        UpgradeHostState::Upgrading => Stored::Upgrading,
        UpgradeHostState::Done => Stored::Done,
        UpgradeHostState::Failed => Stored::Failed,
        UpgradeHostState::Skipped => Stored::Skipped,
    }
}

fn progress(rings: usize, counts: &[UpgradeCount]) -> Vec<UpgradeRingProgress> {
    use proctor_store::UpgradeHostState as Stored;
    let mut progress = vec![UpgradeRingProgress::default(); rings];
    for count in counts {
        let Some(ring) = progress.get_mut(count.ring as usize) else { continue };
        match count.state {
            Stored::Waiting => ring.waiting = count.hosts,
            Stored::Upgrading => ring.upgrading = count.hosts,
            Stored::Done => ring.done = count.hosts,
            Stored::Failed => ring.failed = count.hosts,
            Stored::Skipped => ring.skipped = count.hosts,
        }
    }
    progress
}

/// Pauses an upgrade: hosts that were notified continue, and no further host is notified until it is resumed.
#[utoipa::path(post, path = "/upgrades/{id}/pause", operation_id = "pause_upgrade", params(("id" = String, Path)),
               tag = "hosts", responses((status = 200, body = UpgradeView)))]
pub(super) async fn pause(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<UpgradeView>> {
    steer(&caller, &state, &id, "pause_upgrade", UpgradeWish::Pause).await
}

/// Resumes a paused upgrade.
#[utoipa::path(post, path = "/upgrades/{id}/resume", operation_id = "resume_upgrade", params(("id" = String, Path)),
               tag = "hosts", responses((status = 200, body = UpgradeView)))]
pub(super) async fn resume(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<UpgradeView>> {
    steer(&caller, &state, &id, "resume_upgrade", UpgradeWish::Resume).await
}

/// Cancels an upgrade: no further host is notified, and hosts that have not begun their trial get no build.
///
/// Those on trial continue.
#[utoipa::path(post, path = "/upgrades/{id}/cancel", operation_id = "cancel_upgrade", params(("id" = String, Path)),
               tag = "hosts", responses((status = 200, body = UpgradeView)))]
pub(super) async fn cancel(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<UpgradeView>> {
    steer(&caller, &state, &id, "cancel_upgrade", UpgradeWish::Cancel).await
}

async fn steer(
    caller: &Authenticated,
    state: &ApiState,
    text: &str,
    action: &'static str,
    wish: UpgradeWish,
) -> Result<Json<UpgradeView>> {
    let id = parse_id(text)?;
    let (before, _) = state.control.upgrade(id).await?.ok_or_else(|| unknown(text))?;
    let by = caller.who.clone();
    let work = async move |control: Control| control.steer_upgrade(id, wish, &by).await;
    let audit_result = |is_done: &bool| if *is_done { "done" } else { "not in a state for that" }.to_owned();
    if !state.control.administer(&caller.who, action, [format!("upgrade {id}")], work, audit_result).await? {
        let message = messages::upgrade_is_in_state(id, before.state.as_str());
        return Err(NativeError::new(Kind::Conflict, message));
    }
    let (after, _) = state.control.upgrade(id).await?.ok_or_else(|| unknown(text))?;
    Ok(Json(view(after)))
}

fn parse_id(text: &str) -> Result<Uuid> {
    Uuid::parse_str(text).map_err(|_| unknown(text))
}

fn unknown(id: &str) -> NativeError {
    NativeError::new(Kind::NotFound, messages::no_such_thing(format_args!("upgrade '{id}'")))
}

struct Planned {
    plan: UpgradePlan,
    hosts: Vec<UpgradeHost>,
    builds: Vec<Arc<Build>>,
    /// What would become of each host now.
    fates: Vec<Fate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Upgraded,
    /// It is not connected.
    Away,
    /// It runs the version already.
    Current,
    /// It cannot be upgraded over the link.
    TooOld,
    WithoutBuild,
    /// It runs a newer version, and downgrades are not allowed.
    Newer,
}

impl Fate {
    /// As the upgrade would decide; `takes_upgrades` is unknown of who is not connected.
    fn of(record: &HostRecord, takes_upgrades: Option<bool>, order: &UpgradePlan) -> Self {
        let runs = &record.facts.agent_version;
        match takes_upgrades {
            None => return Self::Away,
            Some(false) => return Self::TooOld,
            Some(true) => {}
        }
        if *runs == order.version {
            return Self::Current;
        }
        if !order.builds.iter().any(|build| build.arch == record.facts.arch) {
            return Self::WithoutBuild;
        }
        let versions = runs.parse::<AgentVersion>().ok().zip(order.version.parse::<AgentVersion>().ok());
        let is_newer = versions.is_some_and(|(runs, wanted)| runs > wanted);
        if is_newer && !order.allow_downgrade { Self::Newer } else { Self::Upgraded }
    }
}

async fn planned(control: &Control, caller: &Caller, body: NewUpgrade) -> Result<Planned> {
    let version: AgentVersion = body.version.parse()?;
    if !DEADLINE_SECS.contains(&body.health_deadline_secs) {
        let problem = messages::must_be_between(DEADLINE_SECS.start(), DEADLINE_SECS.end());
        return Err(FieldError::new("health_deadline_secs", problem).into());
    }
    if body.rings.len() > RINGS_MAX {
        return Err(FieldError::new("rings", messages::more_entries_than(RINGS_MAX)).into());
    }
    let builds = builds_of(control, version.as_str()).await?;
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let records = records(control, caller, chosen).await?;
    let of_plan = |build: &Arc<Build>| UpgradeBuild {
        arch: build.arch.to_owned(),
        name: build.name.clone(),
        sha256: build.sha256.clone(),
        size: build.size,
    };
    let plan = UpgradePlan {
        version: version.as_str().to_owned(),
        builds: builds.iter().map(of_plan).collect(),
        rings: ring_sizes(&body.rings, records.len()),
        health_deadline_secs: body.health_deadline_secs,
        failures_max: body.max_failures,
        allow_downgrade: body.allow_downgrade,
    };
    let fate = |record: &HostRecord| Fate::of(record, control.takes_upgrades(&record.agent), &plan);
    let fates = records.iter().map(fate).collect();
    let now = clock::unix_millis();
    let ring_of = plan.rings.iter().zip(0..).flat_map(|(count, ring)| std::iter::repeat_n(ring, *count as usize));
    let hosts = records.into_iter().zip(ring_of).map(|(record, ring)| UpgradeHost {
        agent: record.agent.clone(),
        host: record.key,
        ring,
        state: proctor_store::UpgradeHostState::Waiting,
        reason: Message::default(),
        version_before: record.facts.agent_version.clone(),
        changed_at: now,
    });
    let hosts = hosts.collect();
    Ok(Planned { plan, hosts, builds, fates })
}

/// One for each kind of machine.
async fn builds_of(control: &Control, version: &str) -> Result<Vec<Arc<Build>>> {
    let mut builds = control.builds().await;
    let known: HashSet<String> = builds.iter().map(|build| build.version.to_string()).collect();
    builds.retain(|build| build.version.as_str() == version);
    if builds.is_empty() {
        let mut known: Vec<String> = known.into_iter().collect();
        known.sort();
        let problem = match known.is_empty() {
            true => messages::no_build_at_all(version),
            false => messages::no_build_of_version(version, known.join(", ")),
        };
        return Err(FieldError::new("version", problem).into());
    }
    let mut machines = HashSet::new();
    for build in &builds {
        let other = builds.iter().find(|other| other.arch == build.arch && other.sha256 != build.sha256);
        if let Some(other) = other {
            let problem = messages::two_builds_of_version(&build.name, &other.name, version, build.arch);
            return Err(FieldError::new("version", problem).into());
        }
    }
    builds.retain(|build| machines.insert(build.arch));
    Ok(builds)
}

async fn records(control: &Control, caller: &Caller, chosen: Chosen) -> Result<Vec<HostRecord>> {
    let records = match chosen {
        Chosen::All => control.hosts(caller, HostQuery::default()).await?,
        Chosen::Business(business) => {
            control.hosts(caller, HostQuery { business: Some(business), ..HostQuery::default() }).await?
        }
        Chosen::These(hosts) => {
            let mut seen = HashSet::new();
            let mut records = Vec::with_capacity(hosts.len());
            for (host, record) in hosts.iter().zip(control.resolve(&hosts).await?) {
                let record = record.ok_or_else(|| unknown_host(host))?;
                if seen.insert(record.agent.clone()) {
                    records.push(record);
                }
            }
            records
        }
    };
    if records.is_empty() {
        return Err(FieldError::new("hosts", messages::matches_no_host()).into());
    }
    Ok(records)
}

/// How many hosts each ring has: each reaches so far, and the rest is the last one.
fn ring_sizes(rings: &[CountOrPercent], hosts: usize) -> Vec<u32> {
    let all = u32::try_from(hosts).unwrap_or(u32::MAX);
    let reach = |ring: &CountOrPercent| match ring {
        CountOrPercent::Count(count) => *count,
        CountOrPercent::Percent(percent) => {
            u32::try_from((u64::from(all) * u64::from(*percent)).div_ceil(100)).unwrap_or(all)
        }
    };
    let mut sizes = Vec::new();
    let mut reached = 0;
    for until in rings.iter().map(reach).chain([all]).map(|until| until.min(all)) {
        if until > reached {
            sizes.push(until - reached);
            reached = until;
        }
    }
    sizes
}

fn build_view(build: &Build) -> BuildView {
    BuildView {
        name: build.name.clone(),
        version: build.version.to_string(),
        arch: build.arch.to_owned(),
        bytes: build.size,
        sha256: build.sha256.clone(),
    }
}

fn view(upgrade: Upgrade) -> UpgradeView {
    use proctor_store::UpgradeState as Stored;
    UpgradeView {
        id: upgrade.id.to_string(),
        version: upgrade.plan.version,
        state: match upgrade.state {
            Stored::Running => UpgradeState::Running,
            Stored::Paused => UpgradeState::Paused,
            Stored::Done => UpgradeState::Done,
            Stored::Failed => UpgradeState::Failed,
            Stored::Cancelled => UpgradeState::Cancelled,
        },
        reason_id: upgrade.reason.phrase().map(|phrase| phrase.id().to_owned()),
        reason_args: upgrade.reason.phrase().map(Phrase::args_json),
        reason: upgrade.reason.into_text(),
        created_by: upgrade.created_by,
        created_at: upgrade.created_at / 1000,
        changed_at: upgrade.changed_at / 1000,
        rings: upgrade.plan.rings,
        health_deadline_secs: upgrade.plan.health_deadline_secs,
        max_failures: upgrade.plan.failures_max,
        allow_downgrade: upgrade.plan.allow_downgrade,
    }
}

fn host_view(host: UpgradeHost) -> UpgradeHostView {
    use proctor_store::UpgradeHostState as Stored;
    UpgradeHostView {
        host: host.host.to_string(),
        agent: host.agent,
        ring: host.ring + 1,
        state: match host.state {
            Stored::Waiting => UpgradeHostState::Waiting,
            Stored::Upgrading => UpgradeHostState::Upgrading,
            Stored::Done => UpgradeHostState::Done,
            Stored::Failed => UpgradeHostState::Failed,
            Stored::Skipped => UpgradeHostState::Skipped,
        },
        reason_id: host.reason.phrase().map(|phrase| phrase.id().to_owned()),
        reason_args: host.reason.phrase().map(Phrase::args_json),
        reason: host.reason.into_text(),
        version_before: host.version_before,
        changed_at: host.changed_at / 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_reach_further_each_time_and_the_rest_is_the_last_one() {
        let sizes = |rings: &[&str], hosts| {
            let rings: Vec<CountOrPercent> = rings.iter().map(|ring| ring.parse().unwrap()).collect();
            ring_sizes(&rings, hosts)
        };

        assert_eq!(sizes(&["1", "5%", "25%", "100%"], 200), [1, 9, 40, 150]);
        assert_eq!(sizes(&["1", "5%", "25%", "100%"], 3), [1, 2]);
        assert_eq!(sizes(&["1"], 1), [1]);
        assert_eq!(sizes(&[], 7), [7]);
        assert_eq!(sizes(&["10", "5"], 7), [7]);
        assert_eq!(sizes(&["2"], 7), [2, 5]);
    }
}

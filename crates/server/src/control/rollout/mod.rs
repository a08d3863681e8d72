//! Rolling tasks: targets that are released a few at a time, by [`machine::RolloutMachine`].
//!
//! Promised: every transition is one store call, which also writes the outcomes that follow from it; only then does
//! memory change and are targets delivered. So a server that dies at any point neither skips a target nor releases
//! more than `max_parallel`, leaves no row open, and never continues a rollout that was stopped or cancelled. Whether
//! a target became healthy is stored, too. One transition at a time ([`Rollouts::turn`]), whoever asks for it; one
//! that the store cannot take is retried. The creator of a task must keep the permission for it (`permissions`).
//! Absent: the choice of targets, which was fixed when the task was submitted.
//! Start at `machine`.

mod machine;
mod open;
pub(super) mod permissions;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, Code, Message, OperationId, OperationKind, Outcome, Phase, ProcessKey, TaskId, messages};
use proctor_runtime::clock;
use proctor_store::{
    FinishedTarget, Millis, OpenRollout, OpenTarget, ProcessRecord, Rollout, RolloutState, RolloutStep, TaskView,
};
use tokio::sync::Notify;

use super::maintenance::{self, Sites};
use super::{Control, Result};
use crate::shares::account_of;
use machine::{RolloutMachine, Step, TargetEnd};
use open::OpenCount;
pub(super) use open::RolloutPermit;

/// How often processes that should become healthy are checked, and failed writes are retried.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Targets whose health is asked for at once.
const SETTLING_ASKED_MAX: usize = 1000;
/// An agent reports what a command did a moment before the outcome is written here.
const REPORT_SLACK_SECS: i64 = 2;
/// A rolling task that is not over when servers ran for so long (paused and forgotten) is cancelled.
const ROLLOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The rolling tasks in progress.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    by_task: Mutex<HashMap<TaskId, ActiveRollout>>,
    pub(super) open: OpenCount,
    /// Held from the choice of a transition until it is written and applied.
    turn: tokio::sync::Mutex<()>,
    wake: Notify,
}

#[derive(Debug)]
struct ActiveRollout {
    roll: RolloutMachine,
    deadline: Instant,
    /// Not released yet, in the order of their index.
    held: VecDeque<OpenTarget>,
    /// Where to look whether what was released becomes healthy: open or settling targets.
    health_targets: HashMap<u32, HealthTarget>,
    _permit: RolloutPermit,
}

#[derive(Clone, Debug)]
struct HealthTarget {
    agent: AgentId,
    key: ProcessKey,
}

/// A target whose operation ended well, and whose process should become healthy.
#[derive(Debug)]
struct Settling {
    task: TaskId,
    index: u32,
    target: HealthTarget,
    since: Millis,
}

impl HealthTarget {
    /// None where the operation leaves no process behind that could become healthy.
    fn new(kind: OperationKind, agent: Option<&AgentId>, key: &ProcessKey) -> Option<Self> {
        use OperationKind::{Kill, Manage, Release, Reload, Restart, Start, Status, Stop};
        match kind {
            Start | Restart | Reload | Manage => Some(Self { agent: agent?.clone(), key: key.clone() }),
            Kill | Release | Status | Stop => None,
        }
    }

    fn of(target: &OpenTarget) -> Option<(u32, Self)> {
        let health_target = Self::new(target.kind, target.agent.as_ref(), &target.key)?;
        Some((target.operation.index, health_target))
    }
}

impl ActiveRollout {
    /// `open` are the targets without an outcome, `health_targets` those that have one and are still settling.
    fn new(
        roll: RolloutMachine,
        open: Vec<OpenTarget>,
        health_targets: HashMap<u32, HealthTarget>,
        left: Duration,
        permit: RolloutPermit,
    ) -> Self {
        let released = roll.released();
        let (released, held): (Vec<_>, Vec<_>) = open.into_iter().partition(|target| target.operation.index < released);
        let deadline = Instant::now() + left;
        let mut rolling = Self { roll, deadline, held: held.into(), health_targets, _permit: permit };
        rolling.health_targets.extend(released.iter().filter_map(HealthTarget::of));
        rolling
    }

    /// Where the targets go that [`Self::release`] gives out.
    fn agents_below(&self, below: u32) -> Vec<AgentId> {
        let next = self.held.iter().take_while(|target| target.operation.index < below);
        next.filter_map(|target| target.agent.clone()).collect()
    }

    fn release(&mut self, below: u32) -> Vec<OpenTarget> {
        let count = self.held.iter().take_while(|target| target.operation.index < below).count();
        let targets: Vec<OpenTarget> = self.held.drain(..count).collect();
        self.health_targets.extend(targets.iter().filter_map(HealthTarget::of));
        targets
    }

    /// A host in maintenance is no failure of the rollout, and nothing of it has to become healthy.
    fn ended(&mut self, index: u32, code: Code) {
        let is_cordoned = code == Code::Cordoned;
        let settles = self.roll.waits_healthy() && self.health_targets.contains_key(&index) && !is_cordoned;
        let ended = match (code.is_success() || is_cordoned, settles) {
            (false, _) => TargetEnd::Failed,
            (true, false) => TargetEnd::Succeeded,
            (true, true) => TargetEnd::Settling(clock::unix_millis()),
        };
        self.roll.ended(index, ended, Instant::now());
        if !matches!(ended, TargetEnd::Settling(_)) {
            self.health_targets.remove(&index);
        }
    }

    fn forget(&mut self, judged: &[(u32, bool)]) {
        for (index, _) in judged {
            self.health_targets.remove(index);
        }
    }
}

impl Rollouts {
    /// The outcomes of these operations are in the store.
    pub(super) fn ended(&self, outcomes: &[(OperationId, Outcome)], recorded: &[OperationId]) {
        let mut by_task = self.by_task.lock();
        if by_task.is_empty() {
            return;
        }
        for (operation, outcome) in outcomes {
            let Some(rolling) = by_task.get_mut(&operation.task) else { continue };
            // Of two outcomes for one target only the one that was kept counts.
            if recorded.contains(operation) {
                rolling.ended(operation.index, outcome.code);
                self.wake.notify_one();
            }
        }
    }
}

impl Control {
    /// Resumes the rolling tasks that an earlier run of the server left, from what is open. Returns the outcomes of
    /// released targets whose hosts were cordoned already, which that server did not get to write.
    pub(super) async fn resume_rollouts(&self, open: &mut Vec<OpenTarget>) -> Result<Vec<(OperationId, Outcome)>> {
        let mut refused = Vec::new();
        let rollouts = self.inner.store.open_rollouts().await?;
        let rolling: HashSet<TaskId> = rollouts.iter().map(|left| left.task).collect();
        let mut by_task: HashMap<TaskId, Vec<OpenTarget>> = HashMap::new();
        for target in open.extract_if(.., |target| rolling.contains(&target.operation.task)) {
            by_task.entry(target.operation.task).or_default().push(target);
        }
        for left in rollouts {
            let (id, released) = (left.task, left.rollout.released);
            let mut of_task = by_task.remove(&id).unwrap_or_default();
            for target in &mut of_task {
                target.created_at = target.created_at.max(left.rollout.released_at_of(target.operation.index));
            }
            let released: Vec<_> = of_task.iter().filter(|target| target.operation.index < released).cloned().collect();
            let sites = self.sites_of(released.iter().filter_map(|target| target.agent.clone()).collect()).await?;
            // What was released before its cordon began was delivered, and may be under way.
            let was_cordoned = |target: &OpenTarget| {
                let cordon = target.agent.as_ref().and_then(|agent| sites.get(agent)?.cordon.as_ref());
                cordon.is_some_and(|it| it.began() <= left.rollout.released_at_of(target.operation.index))
            };
            let (late, admitted): (Vec<_>, Vec<_>) = released.into_iter().partition(was_cordoned);
            open.extend(admitted);
            let (admitted, ended) = maintenance::parted(late, &sites);
            open.extend(admitted);
            refused.extend(ended);
            if let Some(end) = left_over(&left) {
                tracing::warn!(task = %id, state = ?end.rollout.state, "closing targets left open by a finished rollout");
                self.inner.store.step_rollout(id, end, clock::unix_millis()).await?;
            } else if let Some(task) = self.inner.store.task(id).await?
                && left.rollout.state.is_under_way()
            {
                let permit = self.inner.rollouts.open.take_up(account_of(&task.app, &task.user), of_task.len());
                self.inner.rollouts.by_task.lock().insert(id, rebuilt(left, &task, of_task, permit));
            }
        }
        Ok(refused)
    }

    /// A new task that is in the store.
    pub(super) fn begin_rollout(
        &self,
        task: TaskId,
        rollout: Rollout,
        open: Vec<OpenTarget>,
        known: &[(u32, Outcome)],
        permit: RolloutPermit,
    ) {
        let total = u32::try_from(open.len() + known.len()).expect("targets are bounded by the body");
        let is_failure = |code: Code| !code.is_success() && code != Code::Cordoned;
        let ended = known.iter().map(|(index, outcome)| {
            (*index, if is_failure(outcome.code) { TargetEnd::Failed } else { TargetEnd::Succeeded })
        });
        let roll = RolloutMachine::new(rollout, total, &ended.collect(), Instant::now());
        let rolling = ActiveRollout::new(roll, open, HashMap::new(), ROLLOUT_MAX, permit);
        self.inner.rollouts.by_task.lock().insert(task, rolling);
        self.inner.rollouts.wake.notify_one();
    }

    /// False where nothing is left to release, or it does not run.
    pub(super) async fn pause_rollout(&self, task: TaskId) -> Result<bool> {
        let _turn = self.inner.rollouts.turn.lock().await;
        let Some(step) = self.with_rolling(task, |rolling| rolling.roll.pause()).flatten() else { return Ok(false) };
        self.take(task, &step).await
    }

    /// False where the task is not paused.
    pub(super) async fn resume_rollout(&self, task: TaskId) -> Result<bool> {
        let turn = self.inner.rollouts.turn.lock().await;
        let Some(step) = self.with_rolling(task, |rolling| rolling.roll.resume()).flatten() else { return Ok(false) };
        let is_taken = self.take(task, &step).await?;
        drop(turn);
        self.inner.rollouts.wake.notify_one();
        Ok(is_taken)
    }

    /// Ends what has not begun, and has agents abort what has. Returns whether the task was still open.
    pub(super) async fn cancel_now(&self, task: TaskId, message: Message) -> Result<bool> {
        let turn = self.inner.rollouts.turn.lock().await;
        let unreleased = Outcome::new(Code::Cancelled, message, false);
        if !self.inner.store.cancel_task(task, unreleased, clock::unix_millis()).await? {
            return Ok(false);
        }
        self.inner.rollouts.by_task.lock().remove(&task);
        drop(turn);
        self.cancel_open(task).await;
        Ok(true)
    }

    pub(super) async fn run_rollouts(self) {
        let mut period = tokio::time::interval(LOOK_PERIOD);
        let mut rights_period = tokio::time::interval(permissions::RIGHTS_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        rights_period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut access = self.access_changes();
        loop {
            tokio::select! {
                () = self.inner.rollouts.wake.notified() => {}
                _ = period.tick() => self.check_settling().await,
                _ = rights_period.tick() => self.stop_withdrawn().await,
                Ok(()) = access.changed() => self.stop_withdrawn().await,
            }
            for task in self.inner.rollouts.tasks() {
                if let Err(error) = self.advance(task).await {
                    tracing::error!(%error, %task, "cannot store rollout step, retrying");
                }
            }
        }
    }

    /// Takes all steps that are due.
    async fn advance(&self, task: TaskId) -> Result<()> {
        let is_late = self.with_rolling(task, |rolling| Instant::now() >= rolling.deadline);
        if is_late == Some(true) {
            tracing::warn!(%task, limit = ?ROLLOUT_MAX, "rolling task timed out, cancelling");
            self.cancel_now(task, messages::cancelled_too_late()).await?;
            return Ok(());
        }
        loop {
            let _turn = self.inner.rollouts.turn.lock().await;
            let step = self.with_rolling(task, |rolling| rolling.roll.next(Instant::now())).flatten();
            let Some(mut step) = step else { return Ok(()) };
            if let Step::Release { below } = step {
                let reason = match self.withdrawn(task, below).await? {
                    Some(reason) => Some(reason),
                    None => self.outdated(task, below).await?,
                };
                step = reason.map_or(step, Step::Stop);
            }
            if !self.take(task, &step).await? {
                return Ok(());
            }
        }
    }

    /// Writes a step, then acts on it. The caller holds the turn. False if the store says that the rollout is over.
    async fn take(&self, task: TaskId, step: &Step) -> Result<bool> {
        let now = clock::unix_millis();
        let Some(after) = self.with_rolling(task, |rolling| rolling.roll.after(step, now)) else { return Ok(false) };
        // Before the release is written: from then on nothing may fail until its targets are on their way.
        let sites = match step {
            Step::Release { below } => {
                let agents = self.with_rolling(task, |rolling| rolling.agents_below(*below)).unwrap_or_default();
                self.sites_of(agents).await?
            }
            Step::Judge(_) | Step::Pause | Step::Resume | Step::Stop(_) | Step::Finish => Sites::new(),
        };
        if !self.inner.store.step_rollout(task, stored(step, after.clone()), now).await? {
            self.inner.rollouts.by_task.lock().remove(&task);
            return Ok(false);
        }
        self.with_rolling(task, |rolling| rolling.roll.apply(step, after));
        match step {
            Step::Release { below } => {
                let targets = self.with_rolling(task, |rolling| rolling.release(*below));
                self.dispatch_admitted(targets.unwrap_or_default(), &sites).await;
            }
            Step::Judge(judged) => {
                self.with_rolling(task, |rolling| rolling.forget(judged));
            }
            Step::Pause => tracing::info!(%task, "rolling task paused"),
            Step::Resume => tracing::info!(%task, "rolling task resumed"),
            Step::Stop(reason) => {
                let rolling = self.inner.rollouts.by_task.lock().remove(&task);
                let skipped = rolling.map_or(0, |rolling| rolling.held.len());
                tracing::warn!(%task, skipped, ?reason, "rolling task stopped");
            }
            Step::Finish => {
                self.inner.rollouts.by_task.lock().remove(&task);
            }
        }
        Ok(true)
    }

    fn with_rolling<T>(&self, task: TaskId, act: impl FnOnce(&mut ActiveRollout) -> T) -> Option<T> {
        self.inner.rollouts.by_task.lock().get_mut(&task).map(act)
    }

    /// Asks the store which of the processes that should become healthy are.
    async fn check_settling(&self) {
        let waiting: Vec<Settling> = {
            let by_task = self.inner.rollouts.by_task.lock();
            let all = by_task.iter().flat_map(|(task, rolling)| {
                let settling = rolling.roll.settling();
                settling.filter_map(|(index, since)| {
                    Some(Settling { task: *task, index, since, target: rolling.health_targets.get(&index)?.clone() })
                })
            });
            all.collect()
        };
        let mut healthy: BTreeMap<TaskId, Vec<(u32, bool)>> = BTreeMap::new();
        for asked in waiting.chunks(SETTLING_ASKED_MAX) {
            match self.became_healthy(asked).await {
                Ok(well) => well.for_each(|it| healthy.entry(it.task).or_default().push((it.index, true))),
                Err(error) => tracing::warn!(%error, "cannot read the health of processes"),
            }
        }
        for (task, judged) in healthy {
            let _turn = self.inner.rollouts.turn.lock().await;
            if let Err(error) = self.take(task, &Step::Judge(judged)).await {
                tracing::error!(%error, %task, "cannot store rollout step, retrying");
            }
        }
    }

    /// Those of them that are well, by one question to the store about these processes and no others.
    async fn became_healthy<'a>(
        &self,
        waiting: &'a [Settling],
    ) -> Result<impl Iterator<Item = &'a Settling> + use<'a>> {
        let health_targets = waiting.iter().map(|it| (it.target.agent.clone(), it.target.key.clone())).collect();
        let records = self.processes_at(health_targets).await?;
        let is_well = |(it, record): &(&Settling, Option<ProcessRecord>)| {
            record.as_ref().is_some_and(|record| is_well(record, it.since))
        };
        Ok(waiting.iter().zip(records).filter(is_well).map(|(it, _)| it))
    }
}

/// Seen running, after the operation ended, and healthy where somebody says what that is.
fn is_well(record: &ProcessRecord, since: Millis) -> bool {
    let Some(snapshot) = &record.snapshot else { return false };
    let has_health = record.spec.control.health.is_some();
    snapshot.phase == Phase::Running
        && is_reported_since(snapshot.reported_at, since)
        && (!has_health || snapshot.health == "healthy")
}

/// Any number may be the time that an agent tells.
fn is_reported_since(reported_at: i64, since: Millis) -> bool {
    reported_at.saturating_add(REPORT_SLACK_SECS) >= since / 1000
}

/// What the store is told of a step.
fn stored(step: &Step, rollout: Rollout) -> RolloutStep {
    let (judged, unreleased) = match step {
        Step::Judge(judged) => (judged.clone(), None),
        Step::Stop(reason) => (Vec::new(), Some(Outcome::new(Code::Skipped, reason.message(), false))),
        Step::Release { .. } | Step::Pause | Step::Resume | Step::Finish => (Vec::new(), None),
    };
    RolloutStep { rollout, judged, unreleased }
}

/// The step that closes what an earlier version, which wrote its transitions in several pieces, left
/// open when it died: a cancelled task with a rollout under way, rows behind a rollout that is over.
fn left_over(left: &OpenRollout) -> Option<RolloutStep> {
    let has_open = (left.rollout.released..left.total).any(|index| !left.ended.contains_key(&index));
    let end = |state, code, message| {
        let rollout = Rollout { state, ..left.rollout.clone() };
        Some(RolloutStep { rollout, judged: Vec::new(), unreleased: Some(Outcome::new(code, message, false)) })
    };
    let cancelled = messages::cancelled_before_its_turn();
    match left.rollout.state {
        RolloutState::Running | RolloutState::Paused if left.cancelled_at.is_some() => {
            end(RolloutState::Cancelled, Code::Cancelled, cancelled)
        }
        RolloutState::Running | RolloutState::Paused => None,
        RolloutState::Cancelled if has_open => end(RolloutState::Cancelled, Code::Cancelled, cancelled),
        state @ (RolloutState::Failed | RolloutState::Done) if has_open => {
            end(state, Code::Skipped, messages::skipped_before_its_turn())
        }
        RolloutState::Cancelled | RolloutState::Failed | RolloutState::Done => None,
    }
}

/// A rolling task as the store holds it.
fn rebuilt(left: OpenRollout, task: &TaskView, open: Vec<OpenTarget>, permit: RolloutPermit) -> ActiveRollout {
    let health_target = |index: u32| {
        let target = &task.targets.get(index as usize)?.target;
        let item = task.items.get(target.item as usize)?;
        HealthTarget::new(item.kind?, target.agent.as_ref(), &item.key)
    };
    let mut health_targets = HashMap::new();
    let mut ended = BTreeMap::new();
    for (index, FinishedTarget { is_success, recorded_at, healthy }) in left.ended {
        let settles = left.rollout.wait_healthy && index < left.rollout.released;
        let end = match (is_success && healthy != Some(false), healthy, health_target(index).filter(|_| settles)) {
            (false, _, _) => TargetEnd::Failed,
            (true, None, Some(target)) => {
                health_targets.insert(index, target);
                TargetEnd::Settling(recorded_at)
            }
            (true, _, _) => TargetEnd::Succeeded,
        };
        ended.insert(index, end);
    }
    let left_time = ROLLOUT_MAX.saturating_sub(left.age);
    let roll = RolloutMachine::new(left.rollout, left.total, &ended, Instant::now());
    ActiveRollout::new(roll, open, health_targets, left_time, permit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_of_a_report_is_too_large_or_too_small() {
        let now = 1_700_000_000;

        let told = [i64::MIN, 0, now - 3, now - 2, now, i64::MAX].map(|at| is_reported_since(at, now * 1000));

        assert_eq!(told, [false, false, false, true, true, true]);
    }
}

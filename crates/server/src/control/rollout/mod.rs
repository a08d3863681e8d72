//! Rolling tasks: targets that are let go a few at a time, by [`machine::Roll`].
//!
//! Promised: a release is in the store before any of its targets can be delivered, so that a server
//! that dies in between neither skips a target nor lets more than `max_parallel` go; what is never
//! released ends as skipped. One loop takes all steps, so no two of them race.
//! Absent: the choice of targets, which was frozen when the task was submitted.

mod machine;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, Code, OperationId, OperationKind, Outcome, Phase, ProcessKey, TaskId};
use proctor_runtime::clock;
use proctor_store::{Millis, OpenTarget, ProcessQuery, ProcessRecord, Rollout};
use tokio::sync::Notify;

use super::record::{BATCH_MAX, RETRY_AFTER};
use super::{Control, Result};
use machine::{Roll, Step};

/// How often processes that should become well are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// An agent reports what a command did a moment before the outcome is written here.
const REPORT_SLACK_SECS: i64 = 2;
/// A rolling task that is not over by then (paused and forgotten) is cancelled.
const ROLLOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The rolling tasks that are under way.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    by_task: Mutex<HashMap<TaskId, Rolling>>,
    wake: Notify,
}

#[derive(Debug)]
struct Rolling {
    roll: Roll,
    deadline: Instant,
    /// Not released yet, in the order of their index.
    held: VecDeque<OpenTarget>,
    released: HashMap<u32, Place>,
    /// Ended well and not seen healthy yet, with when that was.
    settling: HashMap<u32, Millis>,
}

#[derive(Clone, Debug)]
struct Place {
    agent: AgentId,
    key: ProcessKey,
    /// Whether the operation leaves a process behind that can be well.
    can_settle: bool,
}

impl Place {
    fn of(target: &OpenTarget) -> Option<Self> {
        use OperationKind::{Manage, Reload, Restart, Start};
        let can_settle = matches!(target.kind, Start | Restart | Reload | Manage);
        Some(Self { agent: target.agent.clone()?, key: target.key.clone(), can_settle })
    }
}

impl Rolling {
    /// `open` are the targets without an outcome, `ended` those that have one.
    fn new(rollout: Rollout, open: Vec<OpenTarget>, ended: &BTreeMap<u32, bool>, left: Duration) -> Self {
        let total = u32::try_from(open.len() + ended.len()).expect("targets are bounded by the body");
        let (released, held): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|target| target.operation.index < rollout.released);
        Self {
            roll: Roll::new(rollout, total, ended),
            deadline: Instant::now() + left,
            held: held.into(),
            released: released.iter().filter_map(|t| Some((t.operation.index, Place::of(t)?))).collect(),
            settling: HashMap::new(),
        }
    }

    fn release(&mut self, below: u32) -> Vec<OpenTarget> {
        let count = self.held.iter().take_while(|target| target.operation.index < below).count();
        let targets: Vec<OpenTarget> = self.held.drain(..count).collect();
        self.released.extend(targets.iter().filter_map(|t| Some((t.operation.index, Place::of(t)?))));
        targets
    }

    fn skip(&mut self, code: Code, message: &str) -> Vec<(OperationId, Outcome)> {
        self.held.drain(..).map(|target| (target.operation, Outcome::new(code, message, false))).collect()
    }

    fn ended(&mut self, index: u32, success: bool) {
        let can_settle = self.released.get(&index).is_some_and(|place| place.can_settle);
        if self.roll.ended(index, success, can_settle, Instant::now()) {
            self.settling.insert(index, clock::unix_millis());
        }
    }
}

impl Rollouts {
    /// The outcomes are in the store.
    pub(super) fn ended(&self, outcomes: &[(OperationId, Outcome)]) {
        let mut by_task = self.by_task.lock();
        if by_task.is_empty() {
            return;
        }
        for (operation, outcome) in outcomes {
            if let Some(rolling) = by_task.get_mut(&operation.task) {
                rolling.ended(operation.index, outcome.code.is_success());
                self.wake.notify_one();
            }
        }
    }
}

impl Control {
    /// Takes up the rolling tasks that an earlier life of the server left, out of what is open.
    pub(super) async fn resume_rollouts(&self, open: &mut Vec<OpenTarget>) -> Result<()> {
        for (id, rollout) in self.inner.store.open_rollouts().await? {
            let Some(task) = self.inner.store.task(id).await? else { continue };
            let ended = (0..).zip(&task.targets);
            let ended = ended.filter_map(|(i, target)| Some((i, target.outcome.as_ref()?.code.is_success())));
            let of_task: Vec<OpenTarget> = open.iter().filter(|t| t.operation.task == id).cloned().collect();
            let age = u64::try_from(clock::unix_millis() - task.created_at).unwrap_or(0);
            let left = ROLLOUT_MAX.saturating_sub(Duration::from_millis(age));
            open.retain(|target| target.operation.task != id || target.operation.index < rollout.released);
            let rolling = Rolling::new(rollout, of_task, &ended.collect(), left);
            self.inner.rollouts.by_task.lock().insert(id, rolling);
        }
        Ok(())
    }

    /// A new task that is in the store.
    pub(super) fn begin_rollout(
        &self,
        task: TaskId,
        rollout: Rollout,
        open: Vec<OpenTarget>,
        known: &[(u32, Outcome)],
    ) {
        let ended = known.iter().map(|(index, outcome)| (*index, outcome.code.is_success())).collect();
        let rolling = Rolling::new(rollout, open, &ended, ROLLOUT_MAX);
        self.inner.rollouts.by_task.lock().insert(task, rolling);
        self.inner.rollouts.wake.notify_one();
    }

    /// False where the task is not paused.
    pub(super) async fn resume_rollout(&self, task: TaskId) -> Result<bool> {
        let resumed = {
            let mut by_task = self.inner.rollouts.by_task.lock();
            let Some(rolling) = by_task.get_mut(&task) else { return Ok(false) };
            rolling.roll.resume().then(|| rolling.roll.rollout().clone())
        };
        let Some(rollout) = resumed else { return Ok(false) };
        self.inner.store.set_rollout(task, &rollout).await?;
        self.inner.rollouts.wake.notify_one();
        Ok(true)
    }

    /// What was not released ends as cancelled; what was is the dispatch's.
    pub(super) async fn cancel_rollout(&self, task: TaskId) -> Result<()> {
        let cancelled = {
            let mut by_task = self.inner.rollouts.by_task.lock();
            let Some(rolling) = by_task.get_mut(&task) else { return Ok(()) };
            let outcomes = rolling.skip(Code::Cancelled, "the task was cancelled before this target's turn came");
            rolling.roll.cancel().then(|| (rolling.roll.rollout().clone(), outcomes))
        };
        let Some((rollout, outcomes)) = cancelled else { return Ok(()) };
        self.inner.store.set_rollout(task, &rollout).await?;
        self.inner.rollouts.by_task.lock().remove(&task);
        self.record_all(&outcomes).await;
        Ok(())
    }

    pub(super) async fn run_rollouts(self) {
        let mut period = tokio::time::interval(LOOK_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.inner.rollouts.wake.notified() => {}
                _ = period.tick() => self.look_at_settling().await,
            }
            let tasks: Vec<TaskId> = self.inner.rollouts.by_task.lock().keys().copied().collect();
            for task in tasks {
                self.advance(task).await;
            }
        }
    }

    async fn advance(&self, task: TaskId) {
        loop {
            let (step, rollout, late) = {
                let mut by_task = self.inner.rollouts.by_task.lock();
                let Some(rolling) = by_task.get_mut(&task) else { return };
                let now = Instant::now();
                (rolling.roll.next(now), rolling.roll.rollout().clone(), now >= rolling.deadline)
            };
            if late {
                tracing::warn!(%task, "a rolling task took too long and is cancelled");
                if let Err(error) = self.cancel_rollout(task).await {
                    tracing::error!(%error, %task, "a rolling task cannot be cancelled");
                }
                return;
            }
            let Some(step) = step else { return };
            while let Err(error) = self.inner.store.set_rollout(task, &rollout).await {
                tracing::error!(%error, %task, "the step of a rolling task waits for the store");
                tokio::time::sleep(RETRY_AFTER).await;
            }
            self.act(task, step).await;
        }
    }

    async fn act(&self, task: TaskId, step: Step) {
        let with_rolling = |act: &mut dyn FnMut(&mut Rolling)| {
            if let Some(rolling) = self.inner.rollouts.by_task.lock().get_mut(&task) {
                act(rolling);
            }
        };
        match step {
            Step::Release { below } => {
                let mut targets = Vec::new();
                with_rolling(&mut |rolling| targets = rolling.release(below));
                self.dispatch_now(targets);
            }
            Step::Pause => tracing::info!(%task, "a rolling task waits after its canary"),
            Step::Stop => {
                let mut outcomes = Vec::new();
                let message = "skipped: too many targets before this one failed";
                with_rolling(&mut |rolling| outcomes = rolling.skip(Code::Skipped, message));
                tracing::warn!(%task, skipped = outcomes.len(), "a rolling task was stopped by its failures");
                self.inner.rollouts.by_task.lock().remove(&task);
                self.record_all(&outcomes).await;
            }
            Step::Finish => {
                self.inner.rollouts.by_task.lock().remove(&task);
            }
        }
    }

    async fn record_all(&self, outcomes: &[(OperationId, Outcome)]) {
        for batch in outcomes.chunks(BATCH_MAX) {
            self.record(batch).await;
        }
    }

    /// Asks the store which of the processes that should become well are.
    async fn look_at_settling(&self) {
        let waiting: Vec<(TaskId, u32, Place, Millis)> = {
            let by_task = self.inner.rollouts.by_task.lock();
            let all = by_task.iter().flat_map(|(task, rolling)| {
                rolling
                    .settling
                    .iter()
                    .filter_map(|(index, since)| Some((*task, *index, rolling.released.get(index)?.clone(), *since)))
            });
            all.collect()
        };
        for (task, index, place, since) in waiting {
            match self.is_well(&place, since).await {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(rolling) = self.inner.rollouts.by_task.lock().get_mut(&task) {
                        rolling.settling.remove(&index);
                        rolling.roll.healthy(index);
                    }
                }
                Err(error) => tracing::warn!(%error, "the health of a process cannot be read"),
            }
        }
    }

    async fn is_well(&self, place: &Place, since: Millis) -> Result<bool> {
        let query = ProcessQuery {
            namespace: Some(place.key.namespace.clone()),
            name: Some(place.key.name.clone()),
            agents: Some(vec![place.agent.clone()]),
            ..ProcessQuery::default()
        };
        let (_, records) = self.inner.store.processes(&query).await?;
        Ok(records.first().is_some_and(|record| is_well(record, since)))
    }
}

/// Seen running, after the operation ended, and healthy where somebody says what that is.
fn is_well(record: &ProcessRecord, since: Millis) -> bool {
    let Some(snapshot) = &record.snapshot else { return false };
    let has_health = record.spec.control.health.is_some();
    snapshot.phase == Phase::Running
        && snapshot.reported_at + REPORT_SLACK_SECS >= since / 1000
        && (!has_health || snapshot.health == "healthy")
}

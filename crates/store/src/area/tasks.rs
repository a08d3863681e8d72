//! Tasks: targets, outcomes, idempotency keys and rollouts.
//!
//! Promised: a state transition is one call. Absent: queues, which are rebuilt from open targets.

use async_trait::async_trait;
use proctor_model::{Code, OperationId, Outcome, TaskId};

use crate::{
    CreatedTask, Idempotency, Millis, NewTask, OpenRollout, OpenTarget, ProcessTaskQuery, Result, RolloutStep,
    TargetQuery, TargetRow, TaskQuery, TaskSummary, TaskView,
};

/// Tasks, targets, outcomes and rollouts.
#[async_trait]
pub trait TaskStore: Send + Sync + std::fmt::Debug {
    /// Writes the task, its targets, the outcomes that are already known, its audit entry and (for items with
    /// `register`) the registrations of its targets except cordoned ones, in one transaction. If the idempotency
    /// key is known, nothing is written.
    async fn create_task(&self, task: NewTask) -> Result<CreatedTask>;
    /// The task behind the idempotency key, and whether the call was the same.
    async fn task_of_key(&self, key: &Idempotency) -> Result<Option<(TaskId, bool)>>;
    async fn task(&self, id: TaskId) -> Result<Option<TaskView>>;
    async fn task_summary(&self, id: TaskId) -> Result<Option<TaskSummary>>;
    /// The newest tasks first.
    async fn tasks(&self, query: &TaskQuery) -> Result<Vec<TaskSummary>>;
    /// The matching targets in order; empty if the task is unknown.
    async fn task_targets(&self, id: TaskId, query: &TargetQuery) -> Result<Vec<TargetRow>>;
    /// The codes of the targets that have an outcome, by index; empty if the task is unknown.
    async fn target_codes(&self, id: TaskId) -> Result<Vec<(u32, Code)>>;
    /// Newest tasks first that operate the process, each with its targets for it.
    async fn process_tasks(&self, query: &ProcessTaskQuery) -> Result<Vec<(TaskSummary, Vec<TargetRow>)>>;
    /// Marks the task as cancelled; false if it is unknown, finished or already marked. A rollout in progress
    /// becomes cancelled and its unreleased targets end with `unreleased`, in the same transaction. Other targets
    /// stay open until they get their outcomes.
    async fn cancel_task(&self, id: TaskId, unreleased: Outcome, now: Millis) -> Result<bool>;
    /// Writes a transition of a rolling task: its rollout, what was judged, and the outcomes of unreleased targets.
    /// False, with nothing written, if the task has no rollout; if the rollout is over and its state would change;
    /// or if the task is cancelled and its rollout would not end.
    async fn step_rollout(&self, id: TaskId, step: RolloutStep, now: Millis) -> Result<bool>;
    /// The rollouts of unfinished tasks, and those that run or are paused; oldest task first.
    async fn open_rollouts(&self) -> Result<Vec<OpenRollout>>;
    /// The newest tasks first, without their targets' outcomes.
    async fn task_ids(&self, limit: u32) -> Result<Vec<TaskId>>;
    /// Every target without an outcome, oldest task first.
    async fn open_targets(&self) -> Result<Vec<OpenTarget>>;
    /// Adds outcomes to targets that have none yet and returns those. A second outcome for a target, or one for an
    /// unknown target, is dropped.
    async fn record_outcomes(&self, outcomes: &[(OperationId, Outcome)], now: Millis) -> Result<Vec<OperationId>>;
    /// The outcomes of those targets of the task for which `known` is false, by index: for a task that was read
    /// before, what has changed since.
    async fn new_outcomes(&self, id: TaskId, known: &[bool]) -> Result<Vec<(u32, Outcome)>>;
}

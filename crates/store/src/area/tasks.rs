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
    /// Writes the task, its targets, the outcomes that are known already, its audit entry, and (for
    /// items with `register`) the registrations of its targets but those that are cordoned, in one transaction. Where
    /// its idempotency key is known, nothing is written.
    async fn create_task(&self, task: NewTask) -> Result<CreatedTask>;
    /// The task that the idempotency key stands for, and whether the call was the same.
    async fn task_of_key(&self, key: &Idempotency) -> Result<Option<(TaskId, bool)>>;
    async fn task(&self, id: TaskId) -> Result<Option<TaskView>>;
    async fn task_summary(&self, id: TaskId) -> Result<Option<TaskSummary>>;
    /// The newest tasks first.
    async fn tasks(&self, query: &TaskQuery) -> Result<Vec<TaskSummary>>;
    /// The matching targets in their order; none of an unknown task.
    async fn task_targets(&self, id: TaskId, query: &TargetQuery) -> Result<Vec<TargetRow>>;
    /// The codes of the targets that have an outcome, by index; none of an unknown task.
    async fn target_codes(&self, id: TaskId) -> Result<Vec<(u32, Code)>>;
    /// The newest tasks first that operate the process, each with its targets for it.
    async fn process_tasks(&self, query: &ProcessTaskQuery) -> Result<Vec<(TaskSummary, Vec<TargetRow>)>>;
    /// Marks the task as cancelled; false if it is unknown, finished or marked already. A rollout that
    /// is under way becomes cancelled and its unreleased targets end with `unreleased`, in the same
    /// transaction. Other targets stay open until they get their outcomes.
    async fn cancel_task(&self, id: TaskId, unreleased: Outcome, now: Millis) -> Result<bool>;
    /// Writes a transition of a rolling task: its rollout, what was judged, and the outcomes of
    /// unreleased targets. False, with nothing written, for a task without a rollout; for a rollout that
    /// is over, unless its state stays; for a cancelled task, unless its rollout ends.
    async fn step_rollout(&self, id: TaskId, step: RolloutStep, now: Millis) -> Result<bool>;
    /// The rollouts of tasks that are not finished, and those that run or pause; oldest task first.
    async fn open_rollouts(&self) -> Result<Vec<OpenRollout>>;
    /// The newest tasks first, without their targets' outcomes.
    async fn task_ids(&self, limit: u32) -> Result<Vec<TaskId>>;
    /// Every target without an outcome, oldest task first.
    async fn open_targets(&self) -> Result<Vec<OpenTarget>>;
    /// Adds outcomes to targets that have none yet and returns those. A second outcome for a
    /// target, or one for an unknown target, is dropped.
    async fn record_outcomes(&self, outcomes: &[(OperationId, Outcome)], now: Millis) -> Result<Vec<OperationId>>;
    /// The outcomes of targets of the task for which `known` does not say true, by index. Of a task that
    /// somebody has read before, this is what has changed.
    async fn new_outcomes(&self, id: TaskId, known: &[bool]) -> Result<Vec<(u32, Outcome)>>;
}

//! Tasks, targets, outcomes and rollouts.

use async_trait::async_trait;
use proctor_model::{Code, OperationId, Outcome, TaskId};

use crate::sqlite::{SqliteStore, outcomes, rollouts, tasks};
use crate::{
    CreatedTask, Idempotency, Millis, NewTask, OpenRollout, OpenTarget, ProcessTaskQuery, Result, RolloutStep,
    TargetQuery, TargetRow, TaskQuery, TaskStore, TaskSummary, TaskView,
};

#[async_trait]
impl TaskStore for SqliteStore {
    async fn create_task(&self, task: NewTask) -> Result<CreatedTask> {
        self.writer.run("keep a task", move |c| tasks::create(c, &task)).await
    }

    async fn task_of_key(&self, key: &Idempotency) -> Result<Option<(TaskId, bool)>> {
        let key = key.clone();
        self.readers.run("find a repeated task", move |c| tasks::of_key(c, &key)).await
    }

    async fn task(&self, id: TaskId) -> Result<Option<TaskView>> {
        self.readers.run("read a task", move |c| tasks::get(c, id)).await
    }

    async fn task_summary(&self, id: TaskId) -> Result<Option<TaskSummary>> {
        self.readers.run("read a task", move |c| tasks::summary(c, id)).await
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Vec<TaskSummary>> {
        let query = query.clone();
        self.readers.run("list the tasks", move |c| tasks::list(c, &query)).await
    }

    async fn task_targets(&self, id: TaskId, query: &TargetQuery) -> Result<Vec<TargetRow>> {
        let query = *query;
        self.readers.run("read targets of a task", move |c| tasks::targets(c, id, query)).await
    }

    async fn target_codes(&self, id: TaskId) -> Result<Vec<(u32, Code)>> {
        self.readers.run("read the codes of a task", move |c| outcomes::codes(c, id)).await
    }

    async fn process_tasks(&self, query: &ProcessTaskQuery) -> Result<Vec<(TaskSummary, Vec<TargetRow>)>> {
        let query = query.clone();
        self.readers.run("read the tasks of a process", move |c| tasks::of_process(c, &query)).await
    }

    async fn cancel_task(&self, id: TaskId, unreleased: Outcome, now: Millis) -> Result<bool> {
        self.writer.run("cancel a task", move |c| rollouts::cancel_task(c, id, &unreleased, now)).await
    }

    async fn step_rollout(&self, id: TaskId, step: RolloutStep, now: Millis) -> Result<bool> {
        self.writer.run("write a rollout step", move |c| rollouts::step(c, id, &step, now)).await
    }

    async fn open_rollouts(&self) -> Result<Vec<OpenRollout>> {
        self.readers.run("read the open rollouts", rollouts::open).await
    }

    async fn task_ids(&self, limit: u32) -> Result<Vec<TaskId>> {
        self.readers.run("list the tasks", move |c| tasks::ids(c, limit)).await
    }

    async fn open_targets(&self) -> Result<Vec<OpenTarget>> {
        self.readers.run("read the open targets", tasks::open_targets).await
    }

    async fn record_outcomes(&self, outcomes: &[(OperationId, Outcome)], now: Millis) -> Result<Vec<OperationId>> {
        let outcomes = outcomes.to_vec();
        self.writer.run("keep outcomes", move |c| outcomes::record(c, &outcomes, now)).await
    }

    async fn new_outcomes(&self, id: TaskId, known: &[bool]) -> Result<Vec<(u32, Outcome)>> {
        let known = known.to_vec();
        self.readers.run("read outcomes of a task", move |c| outcomes::besides(c, id, &known)).await
    }
}

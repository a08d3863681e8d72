//! Operations and their tasks.

use futures::{Stream, TryStreamExt};
use proctor_api::{Accepted, OperationRequest, TargetPage, TargetQuery, TargetRow, TaskPage, TaskQuery, TaskView};
use proctor_model::TaskId;
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::paging::pages;
use crate::{Client, NOTHING, Result};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A task together with all its targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeTask {
    #[serde(flatten)]
    pub task: TaskView,
    pub targets: Vec<TargetRow>,
}

impl Client {
    /// Submits an operation. With a key, the same request may be repeated without being executed twice.
    pub async fn operate(&self, operation: &OperationRequest, idempotency_key: Option<&str>) -> Result<Accepted> {
        let mut request = self.request(Method::POST, self.url(&["operations"], NOTHING)).json(operation);
        if let Some(key) = idempotency_key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        self.send_request(request).await
    }

    /// One page of the tasks, newest first.
    pub async fn tasks(&self, query: &TaskQuery) -> Result<TaskPage> {
        self.get(&["tasks"], query).await
    }

    /// All tasks that match, newest first.
    pub fn all_tasks<'a>(&'a self, query: &'a TaskQuery) -> impl Stream<Item = Result<TaskView>> + 'a {
        pages(move |after: Option<String>| async move {
            let page = self.tasks(&TaskQuery { after: after.or_else(|| query.after.clone()), ..query.clone() }).await?;
            Ok((page.tasks, page.next))
        })
    }

    /// The progress of a task.
    pub async fn task(&self, id: TaskId) -> Result<TaskView> {
        self.get(&["tasks", &id.to_string()], NOTHING).await
    }

    /// One page of the targets of a task.
    pub async fn task_targets(&self, id: TaskId, query: &TargetQuery) -> Result<TargetPage> {
        self.get(&["tasks", &id.to_string(), "targets"], query).await
    }

    /// All targets of a task that match, in its order.
    pub fn all_task_targets(&self, id: TaskId, query: TargetQuery) -> impl Stream<Item = Result<TargetRow>> + '_ {
        pages(move |after: Option<u32>| {
            let query = TargetQuery { after: after.or(query.after), ..query.clone() };
            async move {
                let page = self.task_targets(id, &query).await?;
                Ok((page.targets, page.next))
            }
        })
    }

    /// A task with all its targets, however many pages they are.
    pub async fn whole_task(&self, id: TaskId) -> Result<WholeTask> {
        let task = self.task(id).await?;
        let query = TargetQuery { limit: Some(proctor_api::LIMIT_MAX), ..TargetQuery::default() };
        Ok(WholeTask { task, targets: self.all_task_targets(id, query).try_collect().await? })
    }

    /// Ends what has not begun, and has agents abort what has.
    pub async fn cancel_task(&self, id: TaskId) -> Result<TaskView> {
        self.steer(id, "cancel").await
    }

    /// Releases no further targets of a rolling task until it is resumed.
    pub async fn pause_task(&self, id: TaskId) -> Result<TaskView> {
        self.steer(id, "pause").await
    }

    /// Resumes a rolling task after its canary, or after a pause.
    pub async fn resume_task(&self, id: TaskId) -> Result<TaskView> {
        self.steer(id, "resume").await
    }

    /// A new task with the targets that failed.
    pub async fn retry_task(&self, id: TaskId) -> Result<TaskView> {
        self.steer(id, "retry").await
    }

    async fn steer(&self, id: TaskId, how: &str) -> Result<TaskView> {
        self.send_request(self.request(Method::POST, self.url(&["tasks", &id.to_string(), how], NOTHING))).await
    }
}

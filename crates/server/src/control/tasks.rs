//! Tasks after submission: reading, cancelling, retrying, resuming.
//!
//! Promised: a task is readable by the app and the user that created it, and by anyone who may read everything. An
//! app owns what it created for any user, a user what they created themselves or what an app created for them; an app
//! and a user of the same name are different. A cancel reaches the host: what no agent has received ends at once; for
//! the rest the agent is told, and answers what it did.
//! Absent: creating tasks (see `submit`).

use std::collections::BTreeMap;

use proctor_model::{
    AgentId, Class, Code, Namespace, OperationId, OperationKind, Outcome, ProcessKey, Subject, TaskId, messages,
};
use proctor_store::{
    ProcessTaskQuery, RolloutState, TargetQuery, TargetRow, TargetView, TaskQuery, TaskSummary, TaskView,
};

use super::audit::AuditAction;
use super::target_spec::TargetSpec;
use super::{
    Before, Caller, Control, ControlError, HostRef, JobScope, Result, SpecSource, Submission, SubmitOptions, Submitted,
    SubmittedItem, SubmittedTarget,
};

impl Control {
    pub async fn task(&self, caller: &Caller, id: TaskId) -> Result<Option<TaskView>> {
        let Some(task) = self.inner.store.task(id).await? else { return caller.unknown_task(Class::Read, id) };
        caller.require_owner_or(Class::Read, id, &task.owners)?;
        Ok(Some(task))
    }

    pub async fn task_summary(&self, caller: &Caller, id: TaskId) -> Result<Option<TaskSummary>> {
        let Some(task) = self.inner.store.task_summary(id).await? else {
            return caller.unknown_task(Class::Read, id);
        };
        caller.require_owner_or(Class::Read, id, &task.owners)?;
        Ok(Some(task))
    }

    /// The newest first; a caller who may not read everything sees the app's own.
    pub async fn tasks(&self, caller: &Caller, mut query: TaskQuery) -> Result<Vec<TaskSummary>> {
        query.owner = caller.sees_tasks_of();
        Ok(self.inner.store.tasks(&query).await?)
    }

    /// The operations on a process, in the tasks that the caller may read; on one host, or on all.
    pub async fn process_tasks(
        &self,
        caller: &Caller,
        mut query: ProcessTaskQuery,
        host: Option<&HostRef>,
    ) -> Result<Vec<(TaskSummary, Vec<TargetRow>)>> {
        caller.require_anywhere(Class::Read)?;
        if let Some(host) = host {
            let sites = self.sites(std::slice::from_ref(host)).await?;
            let seen = sites
                .into_iter()
                .flatten()
                .filter(|site| caller.is_allowed(Class::Read, site, Some(&query.key.namespace)));
            query.agents = Some(seen.map(|site| site.agent).collect());
        }
        query.owner = caller.sees_tasks_of();
        Ok(self.inner.store.process_tasks(&query).await?)
    }

    /// The codes of the targets that have an outcome, with how far the task is. None for a task that is not known.
    pub async fn target_codes(&self, caller: &Caller, id: TaskId) -> Result<Option<(TaskSummary, Vec<(u32, Code)>)>> {
        let Some(task) = self.task_summary(caller, id).await? else { return Ok(None) };
        Ok(Some((task, self.inner.store.target_codes(id).await?)))
    }

    /// None for a task that is not known.
    pub async fn task_targets(
        &self,
        caller: &Caller,
        id: TaskId,
        query: &TargetQuery,
    ) -> Result<Option<Vec<TargetRow>>> {
        if self.task_summary(caller, id).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(self.inner.store.task_targets(id, query).await?))
    }

    /// Ends what has not begun, and has agents abort what has. Returns whether the task was still open; otherwise
    /// nothing changes and nothing is recorded.
    pub async fn cancel(&self, caller: &Caller, task: TaskId) -> Result<bool> {
        let deed = AuditAction::new("cancel_task", [Class::Operate]).on([task]);
        let view = self.require_task_control(caller, &deed, task, TaskControl::HoldBack).await?;
        if view.cancelled_at.is_some() || view.targets.iter().all(|target| target.outcome.is_some()) {
            return Ok(false);
        }
        let work =
            move |control: Self| async move { control.cancel_now(task, messages::cancelled_before_its_turn()).await };
        self.audited(caller, deed, work, |was_open| if *was_open { "cancelled" } else { "was over" }.to_owned()).await
    }

    /// A task can be controlled by its creator, and by anyone who may operate everything; either needs what its open
    /// targets need, now. Holding them back needs no permission to register what they carry.
    async fn require_task_control(
        &self,
        caller: &Caller,
        deed: &AuditAction,
        task: TaskId,
        steering: TaskControl,
    ) -> Result<TaskView> {
        let Some(view) = self.inner.store.task(task).await? else {
            caller.unknown_task::<()>(Class::Operate, task)?;
            return Err(ControlError::UnknownTask(task));
        };
        let mut check = caller.require_owner_or(Class::Operate, task, &view.owners);
        if check.is_ok() {
            check = self.require_on_open_targets(caller, &view, steering).await;
        }
        self.audit_refusal(caller, deed, check).await?;
        Ok(view)
    }

    async fn require_on_open_targets(&self, caller: &Caller, task: &TaskView, steering: TaskControl) -> Result<()> {
        let mut by_need: BTreeMap<(Class, &Namespace), Vec<AgentId>> = BTreeMap::new();
        for TargetView { target, .. } in task.targets.iter().filter(|view| view.outcome.is_none()) {
            let item = task.items.get(target.item as usize);
            let Some((item, agent)) = item.zip(target.agent.as_ref()) else { continue };
            let Some(kind) = item.kind else { continue };
            let operated = match steering {
                TaskControl::HoldBack => TargetSpec::nothing(),
                TaskControl::GoOn => TargetSpec::kept(item.spec.clone(), item.carried),
            };
            for class in operated.required(kind).iter() {
                by_need.entry((class, &item.key.namespace)).or_default().push(agent.clone());
            }
        }
        for ((class, namespace), agents) in by_need {
            let sites = self.inner.store.sites_by_agent(&agents).await?;
            caller.require_on(class, sites.iter().flatten(), Some(namespace))?;
        }
        Ok(())
    }

    /// Once the store knows that the task is cancelled.
    pub(super) async fn cancel_open(&self, task: TaskId) {
        let ended = self.mark_cancelled(task);
        self.record_all(&ended).await;
    }

    /// Notifies the agents that may be running it. Returns the outcomes of what no agent has received.
    pub(super) fn mark_cancelled(&self, task: TaskId) -> Vec<(OperationId, Outcome)> {
        let (unsent, agents) = self.inner.dispatch.lock().cancel(task);
        for session in agents.iter().filter_map(|agent| self.inner.sessions.get(agent)) {
            session.cancel_some();
        }
        let ended = unsent
            .into_iter()
            .map(|operation| (operation, Outcome::new(Code::Cancelled, messages::cancelled_before_delivery(), false)));
        ended.collect()
    }

    /// Releases no further targets of a rolling task until it is resumed.
    pub async fn pause(&self, caller: &Caller, task: TaskId) -> Result<()> {
        let deed = AuditAction::new("pause_task", [Class::Operate]).on([task]);
        let view = self.require_task_control(caller, &deed, task, TaskControl::HoldBack).await?;
        let not_rolling = move || ControlError::TaskState(messages::task_has_none_to_release(task));
        if view.rollout.is_none_or(|rollout| rollout.state != RolloutState::Running) {
            return Err(not_rolling());
        }
        let work = move |control: Self| async move {
            if control.pause_rollout(task).await? { Ok(()) } else { Err(not_rolling()) }
        };
        self.audited(caller, deed, work, |()| "paused".to_owned()).await
    }

    /// Resumes a rolling task after its canary, or after a pause.
    pub async fn resume(&self, caller: &Caller, task: TaskId) -> Result<()> {
        let deed = AuditAction::new("resume_task", [Class::Operate]).on([task]);
        let view = self.require_task_control(caller, &deed, task, TaskControl::GoOn).await?;
        let not_waiting = move || ControlError::TaskState(messages::task_is_not_paused(task));
        if view.rollout.is_none_or(|rollout| rollout.state != RolloutState::Paused) {
            return Err(not_waiting());
        }
        let work = move |control: Self| async move {
            if control.resume_rollout(task).await? { Ok(()) } else { Err(not_waiting()) }
        };
        self.audited(caller, deed, work, |()| "resumed".to_owned()).await
    }

    /// A new task with the failed targets of an earlier one. The caller needs what the same call would need now; and
    /// the task must be theirs, or they may read or operate everything: the new one names its hosts.
    pub async fn retry(&self, caller: &Caller, id: TaskId, options: SubmitOptions) -> Result<Submitted> {
        let Some(task) = self.inner.store.task(id).await? else {
            let is_visible = caller.unknown_task::<()>(Class::Operate, id);
            is_visible.or_else(|_| caller.unknown_task(Class::Read, id))?;
            return Err(ControlError::UnknownTask(id));
        };
        let is_theirs = |class| caller.require_owner_or(class, id, &task.owners);
        let check = is_theirs(Class::Operate).or_else(|_| is_theirs(Class::Read));
        self.audit_refusal(caller, &AuditAction::new("retry_task", [Class::Operate]).on([id]), check).await?;
        if task.targets.iter().any(|target| target.outcome.is_none()) {
            return Err(ControlError::TaskState(messages::task_is_not_over(id)));
        }
        let scope = task.scope.as_ref().and_then(JobScope::of_task);
        let items = failed_items(task);
        if items.is_empty() {
            return Err(ControlError::TaskState(messages::task_has_no_failed(id)));
        }
        let options = SubmitOptions { retry_of: Some(id), scope, ..options };
        self.submit(Submission { caller: caller.clone(), family: "native", items, options }).await
    }
}

/// What becomes of the open targets of a task that is steered.
#[derive(Clone, Copy, Debug)]
enum TaskControl {
    /// None of them is operated for it, so it does not matter what they carry.
    HoldBack,
    /// They are operated with what they carry.
    GoOn,
}

/// What failed, in items of one process and operation each.
fn failed_items(task: TaskView) -> Vec<SubmittedItem> {
    type Same = (ProcessKey, Option<OperationKind>);
    type Again = (Vec<SubmittedTarget>, Vec<Before>);
    let mut targets: BTreeMap<Same, Again> = BTreeMap::new();
    for TargetView { target, outcome } in task.targets {
        let has_failed = outcome.is_some_and(|outcome| !outcome.code.is_success());
        let Some(item) = task.items.get(target.item as usize).filter(|_| has_failed) else { continue };
        let host = target.agent.map(HostRef::Agent).or_else(|| target.host.map(HostRef::Key));
        let Some(host) = host else { continue };
        let (submitted, before) = targets.entry((item.key.clone(), item.kind)).or_default();
        submitted.push(SubmittedTarget { host, row_key: target.row_key });
        before.push(Before { spec: item.spec.clone(), was_carried: item.carried });
    }
    let items = targets.into_iter().map(|((key, kind), (targets, before))| SubmittedItem {
        key,
        kind,
        spec: SpecSource::Again(before),
        targets,
    });
    items.collect()
}

impl Caller {
    /// To a caller who may not see others' tasks, a nonexistent task looks like somebody else's.
    fn unknown_task<T>(&self, class: Class, task: TaskId) -> Result<Option<T>> {
        self.require_owner_or(class, task, &[]).map(|()| None)
    }

    /// Whose tasks the caller sees in lists; None: everybody's.
    fn sees_tasks_of(&self) -> Option<Subject> {
        match (self.permissions.allows_everywhere(Class::Read), self.app.as_str()) {
            (true, _) => None,
            (false, "") => Some(Subject::User(self.user.clone())),
            (false, app) => Some(Subject::App(app.to_owned())),
        }
    }

    /// A task of the caller's, or any where the class is allowed everywhere.
    fn require_owner_or(&self, class: Class, task: TaskId, owners: &[Subject]) -> Result<()> {
        let is_own = owners.iter().any(|owner| match owner {
            Subject::App(code) => *code == self.app,
            Subject::User(_) => self.subjects.contains(owner),
        });
        if is_own || self.permissions.allows_everywhere(class) {
            return Ok(());
        }
        Err(self.missing(class, [format!("task {task}, which is not known or somebody else's")]))
    }
}

//! Operations that wait for offline hosts end with the permissions of their creator.
//!
//! Promised: a target that waits ends as forbidden, with the reason, once its creator may no longer operate it: checked
//! at once after every access change through this server, and every [`RIGHTS_PERIOD`].
//! Absent: delivered targets; they are in progress, and a cancel stops them. Rolling tasks: see `rollout`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use proctor_model::{AgentId, Class, Code, Message, OperationId, Outcome, Permissions, Subject, TaskId, messages};
use proctor_store::{OpenTarget, Refusal, TaskSummary};

use super::maintenance::Sites;
use super::rollout::permissions::{RIGHTS_PERIOD, lacked, named, refused};
use super::{Control, Result};

/// Who made the tasks that have something waiting; None: the task is gone.
type Creators = HashMap<TaskId, Option<Vec<Subject>>>;

/// What one check of all waits has read: whoever has made many of them, and wherever many wait, is looked up once.
#[derive(Default)]
struct Checked {
    permissions: HashMap<Vec<Subject>, std::result::Result<Permissions, Refusal>>,
    /// The agents that are waited for.
    agents: Vec<AgentId>,
    /// Their hosts; None before somebody needed them.
    sites: Option<Sites>,
}

impl Control {
    pub(super) async fn watch_waits(self) {
        let mut period = tokio::time::interval(RIGHTS_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut access = self.access_changes();
        let mut creators = Creators::new();
        loop {
            tokio::select! {
                _ = period.tick() => {}
                Ok(()) = access.changed() => {}
            }
            self.end_withdrawn_waits(&mut creators).await;
        }
    }

    async fn end_withdrawn_waits(&self, creators: &mut Creators) {
        let waiting = self.inner.dispatch.lock().all_waiting();
        creators.retain(|task, _| waiting.contains_key(task));
        let agents: BTreeSet<AgentId> = waiting.values().flatten().filter_map(|target| target.agent.clone()).collect();
        let mut checked = Checked { agents: agents.into_iter().collect(), ..Checked::default() };
        for (task, targets) in waiting {
            if let Err(error) = self.end_withdrawn(task, targets, creators, &mut checked).await {
                tracing::error!(%error, %task, "cannot check permissions of waiting operations, retrying");
            }
        }
    }

    async fn end_withdrawn(
        &self,
        task: TaskId,
        targets: Vec<OpenTarget>,
        creators: &mut Creators,
        checked: &mut Checked,
    ) -> Result<()> {
        let creators = match creators.entry(task) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => {
                unread.insert(self.inner.store.task_summary(task).await?.map(|task| subjects(&task)))
            }
        };
        let Some(creators) = creators.as_ref().filter(|creators| !creators.is_empty()) else { return Ok(()) };
        let permissions = match checked.permissions.entry(creators.clone()) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(self.permissions_of(creators).await?),
        };
        let is_everywhere =
            |permissions: &Permissions| Class::ALL.into_iter().all(|of| permissions.allows_everywhere(of));
        if permissions.as_ref().is_ok_and(is_everywhere) {
            return Ok(());
        }
        // Whose creator is gone ends wherever it waits.
        if permissions.is_ok() && checked.sites.is_none() {
            checked.sites = Some(self.sites_of(checked.agents.clone()).await?);
        }
        let nowhere = Sites::default();
        let sites = checked.sites.as_ref().unwrap_or(&nowhere);
        let mut ended = withdrawn_waits(creators, permissions, targets, sites);
        {
            // What was delivered meanwhile runs, and its agent reports the result.
            let mut dispatch = self.inner.dispatch.lock();
            ended.retain(|(operation, _)| dispatch.end_waiting(operation));
        }
        self.record_all(&ended).await;
        Ok(())
    }

    async fn permissions_of(&self, creators: &[Subject]) -> Result<std::result::Result<Permissions, Refusal>> {
        let read = self.inner.store.permissions(creators).await?;
        match creators {
            // One name for both: the app may have called for itself, and the user may be another.
            [app @ Subject::App(code), Subject::User(user)] if code == user && read.is_err() => {
                Ok(self.inner.store.permissions(std::slice::from_ref(app)).await?)
            }
            _ => Ok(read),
        }
    }
}

fn withdrawn_waits(
    creators: &[Subject],
    permissions: &std::result::Result<Permissions, Refusal>,
    targets: Vec<OpenTarget>,
    sites: &Sites,
) -> Vec<(OperationId, Outcome)> {
    let forbidden = |message: Message| Outcome::new(Code::Forbidden, message, false);
    let permissions = match permissions {
        Ok(permissions) => permissions,
        Err(refusal) => {
            let outcome = forbidden(refused(refusal));
            return targets.into_iter().map(|target| (target.operation, outcome.clone())).collect();
        }
    };
    let withdrawn = |target: OpenTarget| {
        let site = sites.get(target.agent.as_ref()?)?;
        let class = lacked(permissions, target.kind, site, &target.key.namespace)?;
        let message = messages::may_no_longer(named(creators), class.message(), &target.key.namespace, site.key);
        Some((target.operation, forbidden(message)))
    };
    targets.into_iter().filter_map(withdrawn).collect()
}

/// As of the call that made the task. An app that calls for itself does so under its own name.
fn subjects(task: &TaskSummary) -> Vec<Subject> {
    let app = (!task.app.is_empty()).then(|| Subject::App(task.app.clone()));
    let user = (!task.user.is_empty()).then(|| Subject::User(task.user.clone()));
    app.into_iter().chain(user).collect()
}

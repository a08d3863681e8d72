//! Operations that wait for offline hosts end with the permissions of their creator.
//!
//! Promised: a target that waits ends as forbidden, with the reason, once its creator may no longer operate it: checked
//! at once after every access change through this server, and every [`RIGHTS_PERIOD`].
//! Absent: delivered targets; they are in progress, and a cancel stops them. Rolling tasks: see `rollout`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use proctor_model::{Class, Code, Message, OperationId, Outcome, Permissions, Subject, TaskId, messages};
use proctor_store::{OpenTarget, Refusal, TaskSummary};

use super::rollout::permissions::{RIGHTS_PERIOD, lacked, named, refused};
use super::{Control, Result};

/// Who made the tasks that have something waiting; None: the task is gone.
type Creators = HashMap<TaskId, Option<Vec<Subject>>>;
type ReadPermissions = HashMap<Vec<Subject>, std::result::Result<Permissions, Refusal>>;

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
        // Who has made many of them is looked up once.
        let mut known = ReadPermissions::new();
        for (task, targets) in waiting {
            if let Err(error) = self.end_withdrawn(task, targets, creators, &mut known).await {
                tracing::error!(%error, %task, "cannot check permissions of waiting operations, retrying");
            }
        }
    }

    async fn end_withdrawn(
        &self,
        task: TaskId,
        targets: Vec<OpenTarget>,
        creators: &mut Creators,
        known: &mut ReadPermissions,
    ) -> Result<()> {
        let creators = match creators.entry(task) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => {
                unread.insert(self.inner.store.task_summary(task).await?.map(|task| subjects(&task)))
            }
        };
        let Some(creators) = creators.as_ref().filter(|creators| !creators.is_empty()) else { return Ok(()) };
        let permissions = match known.entry(creators.clone()) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(self.permissions_of(creators).await?),
        };
        let is_everywhere =
            |permissions: &Permissions| Class::ALL.into_iter().all(|of| permissions.allows_everywhere(of));
        if permissions.as_ref().is_ok_and(is_everywhere) {
            return Ok(());
        }
        let mut ended = self.withdrawn_waits(creators, permissions, targets).await?;
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

    async fn withdrawn_waits(
        &self,
        creators: &[Subject],
        permissions: &std::result::Result<Permissions, Refusal>,
        targets: Vec<OpenTarget>,
    ) -> Result<Vec<(OperationId, Outcome)>> {
        let forbidden = |message: Message| Outcome::new(Code::Forbidden, message, false);
        let permissions = match permissions {
            Ok(permissions) => permissions,
            Err(refusal) => {
                let outcome = forbidden(refused(refusal));
                return Ok(targets.into_iter().map(|target| (target.operation, outcome.clone())).collect());
            }
        };
        let agents = targets.iter().filter_map(|target| target.agent.clone()).collect();
        let sites = self.sites_of(agents).await?;
        let withdrawn = |target: OpenTarget| {
            let site = sites.get(target.agent.as_ref()?)?;
            let class = lacked(permissions, target.kind, site, &target.key.namespace)?;
            let message = messages::may_no_longer(named(creators), class.message(), &target.key.namespace, site.key);
            Some((target.operation, forbidden(message)))
        };
        Ok(targets.into_iter().filter_map(withdrawn).collect())
    }
}

/// As of the call that made the task. An app that calls for itself does so under its own name.
fn subjects(task: &TaskSummary) -> Vec<Subject> {
    let app = (!task.app.is_empty()).then(|| Subject::App(task.app.clone()));
    let user = (!task.user.is_empty()).then(|| Subject::User(task.user.clone()));
    app.into_iter().chain(user).collect()
}

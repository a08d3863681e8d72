//! Rolling tasks end with the permissions of their creator.
//!
//! Promised: a target is released only if the task's creator may operate it at that moment; if the permission for a
//! waiting target was revoked, the whole rollout stops and says why. Checked before every release, after every access
//! change through this server, and every [`RIGHTS_PERIOD`]. A target is released only with the spec that is
//! registered at that moment: the permission to operate covers only what is registered.
//! Absent: released targets; they are in progress, and a cancel stops them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    AccessTarget, AgentId, Class, Message, Namespace, OperationKind, Permissions, ProcessKey, Spec, Subject, TaskId,
    messages,
};
use proctor_store::{HostLocation, Refusal};

use super::super::target_spec::TargetSpec;
use super::super::{Control, Result};
use super::machine::{Step, StopReason};
use super::{ActiveRollout, Rollouts};

/// A tool may change rights beside the server.
pub(in super::super) const RIGHTS_PERIOD: Duration = Duration::from_secs(30);

/// What makers may do, read once in a pass.
type ReadPermissions = HashMap<Vec<Subject>, std::result::Result<Permissions, Refusal>>;

/// The targets of a rolling task that wait, and who made it.
struct Waiting {
    makers: Vec<Subject>,
    targets: Vec<(AgentId, ProcessKey, OperationKind)>,
}

impl Waiting {
    fn below(rolling: &ActiveRollout, below: u32) -> Self {
        let targets = rolling.held.iter().take_while(|target| target.operation.index < below);
        let targets = targets.filter_map(|target| Some((target.agent.clone()?, target.key.clone(), target.kind)));
        Self { makers: rolling.roll.makers().to_vec(), targets: targets.collect() }
    }
}

impl Control {
    /// Stops the rolling tasks on whose waiting targets a right was taken away.
    pub(super) async fn stop_withdrawn(&self) {
        // Who made many of them is looked up once.
        let mut known = ReadPermissions::new();
        for task in self.inner.rollouts.tasks() {
            let _turn = self.inner.rollouts.turn.lock().await;
            let stopped = async {
                match self.withdrawn_of(task, u32::MAX, &mut known).await? {
                    Some(reason) => self.take(task, &Step::Stop(reason)).await,
                    None => Ok(false),
                }
            };
            if let Err(error) = stopped.await {
                tracing::error!(%error, %task, "cannot check permissions of rolling task, retrying");
            }
        }
    }

    /// Why the targets below this index that wait would be operated with a spec that is not registered any more.
    pub(super) async fn outdated(&self, task: TaskId, below: u32) -> Result<Option<StopReason>> {
        let held = |rolling: &mut ActiveRollout| {
            let mut by_process: BTreeMap<ProcessKey, Vec<(AgentId, Arc<Spec>)>> = BTreeMap::new();
            for target in rolling.held.iter().take_while(|target| target.operation.index < below) {
                if let (Some(agent), Some(spec)) = (target.agent.clone(), target.spec.clone()) {
                    by_process.entry(target.key.clone()).or_default().push((agent, spec));
                }
            }
            by_process
        };
        for (key, targets) in self.with_rolling(task, held).unwrap_or_default() {
            let registered = self.specs_on(&key, targets.iter().map(|(agent, _)| agent.clone()).collect()).await?;
            if targets.iter().any(|(agent, spec)| registered.get(agent) != Some(spec)) {
                return Ok(Some(StopReason::SpecChanged(key)));
            }
        }
        Ok(None)
    }

    /// Why the targets below this index that wait must not be released.
    pub(super) async fn withdrawn(&self, task: TaskId, below: u32) -> Result<Option<StopReason>> {
        self.withdrawn_of(task, below, &mut ReadPermissions::new()).await
    }

    async fn withdrawn_of(&self, task: TaskId, below: u32, known: &mut ReadPermissions) -> Result<Option<StopReason>> {
        let Some(waiting) = self.with_rolling(task, |rolling| Waiting::below(rolling, below)) else { return Ok(None) };
        if waiting.makers.is_empty() || waiting.targets.is_empty() {
            return Ok(None);
        }
        let permissions = match known.entry(waiting.makers.clone()) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(self.inner.store.permissions(&waiting.makers).await?),
        };
        let permissions = match permissions {
            Ok(permissions) => permissions,
            Err(refusal) => return Ok(Some(StopReason::RightsWithdrawn(refused(refusal)))),
        };
        if Class::ALL.into_iter().all(|class| permissions.allows_everywhere(class)) {
            return Ok(None);
        }
        let agents: Vec<AgentId> = waiting.targets.iter().map(|(agent, _, _)| agent.clone()).collect();
        let sites = self.inner.store.sites_by_agent(&agents).await?;
        let lost = waiting.targets.iter().zip(sites).find_map(|((_, key, kind), site)| {
            let site = site?;
            let class = lacked(permissions, *kind, &site, &key.namespace)?;
            Some(messages::may_no_longer(named(&waiting.makers), class.message(), &key.namespace, site.key))
        });
        Ok(lost.map(StopReason::RightsWithdrawn))
    }
}

/// The names of whoever made a task.
pub(in super::super) fn named(makers: &[Subject]) -> Message {
    makers.iter().map(messages::named).reduce(messages::both).unwrap_or_default()
}

pub(in super::super) fn refused(refusal: &Refusal) -> Message {
    match refusal {
        Refusal::UserDisabled(user) => messages::user_is_disabled(user),
        Refusal::UnknownUser(user) => messages::user_is_unknown(user),
        Refusal::UnknownApp(app) => messages::app_is_unknown(app),
        Refusal::UnknownBusiness(_)
        | Refusal::UnknownBusinessSet(_)
        | Refusal::UnknownRole(_)
        | Refusal::BuiltInRole(_)
        | Refusal::UnknownToken(_)
        | Refusal::AppExists(_)
        | Refusal::CredentialChanged(_)
        | Refusal::UserExists(_)
        | Refusal::OtherKey { .. } => refusal.message(),
    }
}

/// A class that the operation takes and the permissions lack. Neither rolling tasks nor waiting operations carry specs.
pub(in super::super) fn lacked(
    permissions: &Permissions,
    kind: OperationKind,
    site: &HostLocation,
    namespace: &Namespace,
) -> Option<Class> {
    let target = AccessTarget { business: site.business, cloud: Some(site.key.cloud), namespace: Some(namespace) };
    TargetSpec::nothing().required(kind).iter().find(|class| !permissions.allows(*class, &target))
}

impl Rollouts {
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        self.by_task.lock().keys().copied().collect()
    }
}

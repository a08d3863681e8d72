//! From a submission to a durable task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, Code, OperationId, OperationKind, Outcome, ProcessKey, Spec, TaskId};
use proctor_runtime::clock;
use proctor_store::{HostRecord, Millis, NewTask, OpenTarget, ProcessQuery, Target, TaskItem};
use uuid::Uuid;

use super::{Control, HostRef, Result, SpecSource, Submission, SubmittedItem, never_enrolled};

/// Beyond its own time an operation gets this long for the way there and back.
const TRAVEL: Duration = Duration::from_secs(10);

/// A task in the making.
#[derive(Debug, Default)]
struct Draft {
    items: Vec<TaskItem>,
    targets: Vec<Target>,
    outcomes: Vec<(u32, Outcome)>,
}

impl Control {
    /// Makes the task durable, then sends its targets on their way. The id that is returned is
    /// readable from now on, whatever happens.
    pub async fn submit(&self, submission: Submission) -> Result<TaskId> {
        self.to_end("submit", |control| async move { control.submit_to_end(submission).await }).await
    }

    async fn submit_to_end(&self, submission: Submission) -> Result<TaskId> {
        let id = TaskId::from_uuid(Uuid::now_v7());
        let created_at = clock::unix_millis();
        let mut draft = Draft::default();
        for item in submission.items {
            self.draft_item(&mut draft, item).await?;
        }
        let open = draft.open_targets(id, created_at);
        let registers = draft.items.iter().any(|item| item.register);
        self.inner
            .store
            .create_task(NewTask {
                id,
                created_at,
                app: submission.caller.app,
                user: submission.caller.user,
                family: submission.family.to_owned(),
                items: draft.items,
                targets: draft.targets,
                outcomes: draft.outcomes,
                audit: None,
                idempotency: None,
                retry_of: None,
                rollout: None,
            })
            .await?;
        let agents: Vec<AgentId> = open.iter().filter_map(|target| target.agent.clone()).collect();
        if registers {
            self.wake(agents.iter()); // before: an agent learns the spec, then the operation
        }
        self.inner.dispatch.lock().add(open, Instant::now());
        for session in agents.iter().filter_map(|agent| self.inner.sessions.get(agent)) {
            session.wake();
        }
        Ok(id)
    }

    async fn draft_item(&self, draft: &mut Draft, item: SubmittedItem) -> Result<()> {
        let refs: Vec<HostRef> = item.targets.iter().map(|target| target.host.clone()).collect();
        let hosts = self.resolve(&refs).await?;
        let specs = match &item.spec {
            SpecSource::Given(spec) => Specs::One(spec.clone()),
            SpecSource::Registered => Specs::PerAgent(self.registered_specs(&item.key, &hosts).await?),
        };
        // One item for each spec; the store gives equal specs as one.
        let mut indexes: HashMap<Option<*const Spec>, u32> = HashMap::new();
        for (target, host) in item.targets.into_iter().zip(hosts) {
            let spec = host.as_ref().and_then(|host| specs.of(&host.agent));
            let outcome = known_outcome(&item.key, item.kind, &target.host, host.as_ref(), spec.as_ref());
            let index = *indexes.entry(spec.as_ref().map(Arc::as_ptr)).or_insert_with(|| {
                draft.items.push(task_item(&item.key, item.kind, spec, matches!(specs, Specs::One(_))));
                u32::try_from(draft.items.len() - 1).expect("items are bounded by the body")
            });
            let number = u32::try_from(draft.targets.len()).expect("targets are bounded by the body");
            draft.targets.push(Target {
                item: index,
                agent: host.as_ref().map(|host| host.agent.clone()),
                host: host.as_ref().map(|host| host.key).or_else(|| target.host.key()),
                row_key: target.row_key,
            });
            draft.outcomes.extend(outcome.map(|outcome| (number, outcome)));
        }
        Ok(())
    }

    async fn registered_specs(
        &self,
        key: &ProcessKey,
        hosts: &[Option<HostRecord>],
    ) -> Result<HashMap<AgentId, Arc<Spec>>> {
        let query = ProcessQuery {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            agents: Some(hosts.iter().flatten().map(|host| host.agent.clone()).collect()),
            ..ProcessQuery::default()
        };
        let (_, records) = self.inner.store.processes(&query).await?;
        Ok(records.into_iter().map(|record| (record.agent, record.spec)).collect())
    }
}

enum Specs {
    One(Arc<Spec>),
    PerAgent(HashMap<AgentId, Arc<Spec>>),
}

impl Specs {
    fn of(&self, agent: &AgentId) -> Option<Arc<Spec>> {
        match self {
            Self::One(spec) => Some(spec.clone()),
            Self::PerAgent(specs) => specs.get(agent).cloned(),
        }
    }
}

fn task_item(key: &ProcessKey, kind: Option<OperationKind>, spec: Option<Arc<Spec>>, given: bool) -> TaskItem {
    let needed = match (&spec, kind) {
        (Some(spec), Some(kind)) => kind.time_needed(spec),
        (None, _) | (_, None) => Duration::ZERO,
    };
    let time_limit_ms = u64::try_from((needed + TRAVEL).as_millis()).expect("a bounded number of seconds");
    let register = given && kind.is_some_and(OperationKind::stores_spec);
    TaskItem { key: key.clone(), kind, spec, register, time_limit_ms }
}

/// The outcome of a target that needs no agent.
fn known_outcome(
    key: &ProcessKey,
    kind: Option<OperationKind>,
    named: &HostRef,
    host: Option<&HostRecord>,
    spec: Option<&Arc<Spec>>,
) -> Option<Outcome> {
    let Some(kind) = kind else {
        let message = "op_type must be one of 0, 1, 2, 3, 4, 7, 8, 9";
        return Some(Outcome::new(Code::IllegalOperation, message, false));
    };
    let Some(host) = host else { return Some(never_enrolled(named)) };
    if spec.is_none() && kind != OperationKind::Status {
        let message = format!("process {key} is not registered on host {}: register it first", host.key);
        return Some(Outcome::new(Code::CommandFailed, message, false));
    }
    None
}

impl Draft {
    fn open_targets(&self, task: TaskId, created_at: Millis) -> Vec<OpenTarget> {
        let done: std::collections::HashSet<u32> = self.outcomes.iter().map(|(index, _)| *index).collect();
        let numbered = (0..).zip(&self.targets);
        numbered
            .filter(|(index, _)| !done.contains(index))
            .filter_map(|(index, target)| {
                let item = &self.items[target.item as usize];
                Some(OpenTarget {
                    operation: OperationId::first(task, index),
                    agent: target.agent.clone(),
                    key: item.key.clone(),
                    kind: item.kind?,
                    spec: item.spec.clone(),
                    created_at,
                    time_limit_ms: item.time_limit_ms,
                })
            })
            .collect()
    }
}

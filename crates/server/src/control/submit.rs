//! From a submission to a durable task.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{
    AgentId, Class, Classes, Code, HostKey, Message, OperationId, OperationKind, Outcome, ProcessKey, Scope, Spec,
    TaskId, messages,
};
use proctor_runtime::clock;
use proctor_store::{
    AuditPhase, CreatedTask, HostLocation, Idempotency, Millis, NewTask, OpenTarget, ProcessQuery, Target, TaskItem,
};
use uuid::Uuid;

use super::access::Spot;
use super::audit::AuditAction;
use super::budget::UnreachedTargets;
use super::dispatch::TRAVEL;
use super::maintenance;
use super::open_room::{OpenRoom, Opens};
use super::target_spec::{Origin, Specs, TargetSpec};
use super::{
    Caller, Control, ControlError, HostRef, IdempotencyKey, Result, Session, SpecSource, Submission, Submitted,
    SubmittedItem, never_enrolled,
};

/// Refused targets that a plan of nothing else lists.
const REFUSED_PLANNED_MAX: usize = 100;

/// A task in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// What its caller must be allowed to do.
    pub(super) classes: BTreeSet<Class>,
    items: Vec<TaskItem>,
    pub(super) targets: Vec<Target>,
    outcomes: Vec<(u32, Outcome)>,
    /// Which target is this process on this host.
    taken: HashMap<(ProcessKey, AgentId), usize>,
    /// Hosts that are placed in a business.
    pub(super) placed: Vec<(u64, HostKey)>,
    /// Targets that reach nothing, but for those that are forbidden.
    strangers: UnreachedTargets,
    /// Forbidden targets, of status queries and of operations.
    refused_queries: UnreachedTargets,
    refused_operations: UnreachedTargets,
    /// Hosts on which the caller lacks a class, or may not register this spec.
    pub(super) forbidden: Vec<Forbidden>,
    /// How long targets wait for a host that is offline.
    wait: Duration,
}

/// A target that is refused.
#[derive(Debug)]
pub(super) struct Forbidden {
    pub(super) class: Class,
    /// As the call names it.
    pub(super) host: String,
    /// Of its row.
    pub(super) message: Message,
}

/// What a submission would do, target by target.
#[derive(Clone, Debug)]
pub struct Planned {
    pub target: Target,
    pub key: ProcessKey,
    pub kind: Option<OperationKind>,
    /// The outcome that is known without asking the host.
    pub outcome: Option<Outcome>,
    /// What the spec asks for and does not get.
    pub note: Option<Message>,
}

impl Control {
    /// Makes the task durable, then sends its targets on their way. The id that is returned is
    /// readable from now on, whatever happens.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted> {
        self.run_to_completion("submit", |control| async move { control.submit_to_end(submission).await }).await
    }

    /// The task that an earlier submission of the caller created under this key, if it asked for the same.
    pub async fn submitted_before(&self, caller: &Caller, key: &IdempotencyKey) -> Result<Option<TaskId>> {
        match self.inner.store.task_of_key(&caller.idempotency(key.clone())).await? {
            None => Ok(None),
            Some((task, true)) => Ok(Some(task)),
            Some((task, false)) => Err(ControlError::KeyReused { task }),
        }
    }

    /// What [`Self::submit`] would do; changes nothing.
    pub async fn plan(&self, submission: Submission) -> Result<Vec<Planned>> {
        submission.caller.require_something(&submission.items)?;
        let targets = submission.items.iter().map(|item| item.targets.len()).sum();
        self.inner.budgets.take_planned(&submission.caller, targets, Instant::now())?;
        let mut draft = Draft { wait: submission.options.wait, ..Draft::default() };
        for item in submission.items {
            self.draft_item(&mut draft, &submission.caller, item).await?;
        }
        // A caller that may do nothing of it learns that from a few rows.
        if draft.targets.len() > REFUSED_PLANNED_MAX {
            draft.require_some_allowed(&submission.caller)?;
        }
        let mut outcomes: HashMap<u32, Outcome> = draft.outcomes.into_iter().collect();
        let items = draft.items;
        let targets = (0..).zip(draft.targets);
        let planned = targets.map(|(index, target)| {
            let item = &items[target.item as usize];
            let hosts =
                matches!(item.kind, Some(OperationKind::Start | OperationKind::Restart | OperationKind::Manage));
            let note = item.spec.as_ref().filter(|_| hosts).and_then(|spec| spec.instances_note());
            Planned { key: item.key.clone(), kind: item.kind, outcome: outcomes.remove(&index), note, target }
        });
        Ok(planned.collect())
    }

    async fn submit_to_end(&self, submission: Submission) -> Result<Submitted> {
        let Submission { caller, family, items, options } = submission;
        let id = TaskId::from_uuid(Uuid::now_v7());
        let (created_at, begun) = (clock::unix_millis(), Instant::now());
        let check = caller.require_something(&items);
        if check.is_err() {
            self.audit_refusal(&caller, &attempted(&items), check).await?;
        }
        let mut draft = Draft { wait: options.wait, ..Draft::default() };
        for item in items {
            self.draft_item(&mut draft, &caller, item).await?;
        }
        let check = draft.require_some_allowed(&caller);
        if check.is_err() {
            self.audit_refusal(&caller, &draft.deed(), check).await?;
        }
        if let Some(scope) = options.scope {
            let check = self.check_job(&caller, scope, &draft).await;
            self.audit_refusal(&caller, &draft.deed(), check).await?;
        }
        // A resume asks for the right to operate alone: what waits must be what is registered.
        if options.rolling.is_some() && draft.items.iter().any(|item| item.carried) {
            return Err(ControlError::TaskState(messages::rolling_carries_no_spec()));
        }
        let open = draft.open_targets(id, created_at);
        let permit = options.rolling.map(|_| self.inner.rollouts.open.take(&caller, open.len())).transpose()?;
        // What an administrator stops in an emergency waits for nobody.
        let room = match permit {
            Some(_) => None,
            None if caller.is_admin() => None,
            None => {
                let reached = open.iter().filter(|target| target.agent.is_some()).count();
                let opens = if open.iter().all(|target| target.kind == OperationKind::Status) {
                    Opens::StatusQueries
                } else if open.iter().any(|target| target.wait_ms > 0) {
                    Opens::Waiting
                } else {
                    Opens::Operations
                };
                Some(OpenRoom::take(self, caller.account(), reached, opens)?)
            }
        };
        // Neither queries nor who is not known must keep the others of a call from being stopped.
        let operations = open.iter().filter(|target| target.kind != OperationKind::Status).count();
        let check = self.check_refused_rows(&caller, &draft, operations, open.len() - operations);
        if check.is_err() {
            self.audit_refusal(&caller, &draft.deed(), check).await?;
        }
        self.inner.budgets.take_strangers(&caller, draft.strangers, operations, Instant::now())?;
        self.inner.budgets.take_status(&caller, &draft.status_rows(), operations, Instant::now())?;
        let audit = match draft.only_status() {
            false if operations > 0 || draft.registers() => {
                let deed = self.named_within_budget(&caller, draft.deed());
                Some(caller.entry(&deed, AuditPhase::Done, id.to_string()))
            }
            false => self.entry_without_change(&caller, &draft.deed(), id.to_string()).await,
            true if draft.forbidden.is_empty() => None,
            true => self.entry_without_change(&caller, &draft.refused_deed(), id.to_string()).await,
        };
        let rollout = options.rolling.map(|rolling| rolling.begin(draft.targets.len(), &caller.subjects));
        let (targets, action) = (draft.targets.len(), draft.action());
        let ended: Vec<Code> = draft.outcomes.iter().map(|(_, outcome)| outcome.code).collect();
        let known = if rollout.is_some() { draft.outcomes.clone() } else { Vec::new() };
        let task = NewTask {
            id,
            created_at,
            app: caller.app.clone(),
            user: caller.user.clone(),
            family: family.to_owned(),
            audit,
            idempotency: options.idempotency.map(|key| caller.idempotency(key)),
            retry_of: options.retry_of,
            scope: options.scope.map(Scope::from),
            rollout: rollout.clone(),
            items: draft.items,
            targets: draft.targets,
            outcomes: draft.outcomes,
        };
        let registered = match self.inner.store.create_task(task).await? {
            CreatedTask::Created { registered } => registered,
            CreatedTask::Existing { id, same_body: true } => return Ok(Submitted { task: id, is_new: false }),
            CreatedTask::Existing { id, same_body: false } => return Err(ControlError::KeyReused { task: id }),
        };
        self.inner.metrics.task(family, targets);
        self.trace_submission(&caller, id, action, targets, begun);
        self.inner.metrics.outcomes(ended);
        // Registrations first: an agent gets the spec, then the operation.
        let sessions = self.sessions_behind(&open, &registered);
        match rollout.zip(permit) {
            Some((rollout, permit)) => {
                sessions.iter().for_each(|session| session.reassign());
                self.begin_rollout(id, rollout, open, &known, permit);
            }
            None => {
                // Woken by what they have to do.
                sessions.iter().for_each(|session| session.mark_reassign());
                self.dispatch_in(room.map(|room| (id, room)), open);
            }
        }
        Ok(Submitted { task: id, is_new: true })
    }

    /// A task has rows for forbidden targets beside the others, as callers expect: as many as it reaches, and some more
    /// in an hour. What is refused must not fill the store.
    fn check_refused_rows(&self, caller: &Caller, draft: &Draft, operations: usize, queries: usize) -> Result<()> {
        let rows = [(draft.refused_operations, operations), (draft.refused_queries, queries)];
        for (refused, reached) in rows {
            if !self.inner.budgets.take_refused(caller, refused, reached, Instant::now()) {
                let message = messages::too_many_forbidden(draft.forbidden.len(), draft.targets.len());
                return Err(draft.all_forbidden(caller, message));
            }
        }
        Ok(())
    }

    /// The sessions that have not sent what is registered for these targets, by index with its generation.
    fn sessions_behind(&self, open: &[OpenTarget], registered: &[(u32, u64)]) -> Vec<Arc<Session>> {
        let mut registered = registered.iter().copied().peekable();
        let behind = open.iter().filter_map(|target| {
            let index = target.operation.index;
            while registered.next_if(|(earlier, _)| *earlier < index).is_some() {}
            let (_, generation) = registered.next_if(|(same, _)| *same == index)?;
            let session = self.inner.sessions.get(target.agent.as_ref()?)?;
            (session.sent_generation() < generation).then_some(session)
        });
        behind.collect()
    }

    /// Hands targets that are in the store to the sessions of their agents.
    pub(super) fn dispatch_now(&self, open: Vec<OpenTarget>) {
        self.dispatch_in(None, open);
    }

    /// As [`Self::dispatch_now`], of a task with the room that was taken for it.
    fn dispatch_in(&self, room: Option<(TaskId, OpenRoom)>, open: Vec<OpenTarget>) {
        let mut dispatch = self.inner.dispatch.lock();
        if let Some((task, room)) = room {
            room.opens(task, &mut dispatch);
        }
        let connected = dispatch.add(open, Instant::now());
        drop(dispatch);
        self.inner.wakes.wake(self.inner.sessions.get_all(&connected));
    }

    async fn draft_item(&self, draft: &mut Draft, caller: &Caller, item: SubmittedItem) -> Result<()> {
        let SubmittedItem { key, kind, spec, targets } = item;
        let refs: Vec<HostRef> = targets.iter().map(|target| target.host.clone()).collect();
        // What is no operation reaches no host, so its rows tell nothing of one.
        let hosts = if kind.is_some() { self.sites(&refs).await? } else { vec![None; refs.len()] };
        let spots = self.spots(&refs, &hosts).await?;
        let specs = match kind {
            Some(kind) => Some(self.specs(caller, &key, kind, &spec, &hosts, &spots).await?),
            None => None,
        };
        // Targets with one spec share an item; the store gives equal specs as one.
        let mut indexes: HashMap<(bool, Origin, Option<*const Spec>), u32> = HashMap::new();
        for (index, ((target, host), spot)) in targets.into_iter().zip(hosts).zip(&spots).enumerate() {
            let agent = host.as_ref().map(|host| &host.agent);
            let mut carried = specs.as_ref().map_or_else(TargetSpec::nothing, |specs| specs.of(index, agent));
            let needed = kind.map(|kind| carried.required(kind)).unwrap_or_default();
            draft.classes.extend(needed.iter());
            let refused = match &host {
                Some(_) => refusal(caller, needed, spot, &key, &carried),
                None => kind.and_then(|kind| unknown_refusal(caller, kind, spot, &key)),
            };
            let is_refused = refused.is_some();
            if let Some(Outcome { message, .. }) = &refused {
                let class = caller.first_missing(needed, spot, &key.namespace).unwrap_or(Class::Register);
                draft.forbidden.push(Forbidden { class, host: spot.named.to_string(), message: message.clone() });
                carried.spec = None;
            }
            let is_stranger = is_refused || reaches_nothing(kind, host.as_ref(), &carried);
            let outcome = refused.or_else(|| known_outcome(&key, kind, &target.host, host.as_ref(), &carried));
            let same = (is_refused, carried.origin, carried.spec.as_ref().map(Arc::as_ptr));
            let unreached = match is_refused {
                true if kind == Some(OperationKind::Status) => &mut draft.refused_queries,
                true => &mut draft.refused_operations,
                false => &mut draft.strangers,
            };
            if is_stranger {
                unreached.add_target(&target.row_key, outcome.as_ref().map(|outcome| &outcome.message));
            }
            let item = *indexes.entry(same).or_insert_with(|| {
                if is_stranger {
                    unreached.add_item(&key);
                }
                draft.items.push(task_item(&key, kind, carried, draft.wait));
                u32::try_from(draft.items.len() - 1).expect("items are bounded by the body")
            });
            // Of a host that the caller may not touch, the task tells nothing but what the call said: neither what
            // it is called elsewhere nor that two names are one host.
            let known = host.as_ref().filter(|_| !is_refused);
            let named_agent = if is_refused || kind.is_none() { target.host.agent() } else { None };
            draft.placed.extend(known.and_then(|host| Some((host.business?, host.key))));
            // A host that the caller names in two ways is operated once.
            if let Some(first) = draft.earlier(&key, known) {
                draft.join(first, item, target.row_key)?;
                continue;
            }
            let number = u32::try_from(draft.targets.len()).expect("targets are bounded by the body");
            if let Some(host) = known {
                draft.taken.insert((key.clone(), host.agent.clone()), draft.targets.len());
            }
            draft.targets.push(Target {
                item,
                agent: known.map(|host| host.agent.clone()).or(named_agent),
                host: known.map(|host| host.key).or_else(|| target.host.key()),
                row_key: target.row_key,
                other_row_keys: Vec::new(),
            });
            draft.outcomes.extend(outcome.map(|outcome| (number, outcome)));
        }
        Ok(())
    }

    /// What each target is operated with. What is registered is not asked for where a change carries its
    /// own whole spec and its caller may register it on every target.
    async fn specs<'a>(
        &self,
        caller: &Caller,
        key: &ProcessKey,
        kind: OperationKind,
        source: &'a SpecSource,
        hosts: &[Option<HostLocation>],
        spots: &[Spot<'_>],
    ) -> Result<Specs<'a>> {
        let known = || hosts.iter().zip(spots).filter(|(host, _)| host.is_some());
        let may_register = || known().all(|(_, spot)| caller.may_register_unbounded(spot, &key.namespace));
        let registered = match source {
            SpecSource::Given(given) if kind != OperationKind::Status && !given.omitted.any() && may_register() => None,
            SpecSource::Given(_) | SpecSource::Registered | SpecSource::Again(_) => {
                Some(self.registered_specs(key, hosts).await?)
            }
        };
        Ok(Specs::new(kind, source, registered))
    }

    async fn registered_specs(
        &self,
        key: &ProcessKey,
        hosts: &[Option<HostLocation>],
    ) -> Result<HashMap<AgentId, Arc<Spec>>> {
        self.specs_on(key, hosts.iter().flatten().map(|host| host.agent.clone()).collect()).await
    }

    /// The registered specs of a process on hosts.
    pub(super) async fn specs_on(&self, key: &ProcessKey, agents: Vec<AgentId>) -> Result<HashMap<AgentId, Arc<Spec>>> {
        let query = ProcessQuery {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            agents: Some(agents),
            ..ProcessQuery::default()
        };
        let (_, records) = self.inner.store.processes(&query).await?;
        Ok(records.into_iter().map(|record| (record.agent, record.spec)).collect())
    }
}

impl Caller {
    /// A caller without any permission is refused before anything is looked up.
    fn require_something(&self, items: &[SubmittedItem]) -> Result<()> {
        if self.has_any_permission() {
            return Ok(());
        }
        self.require_anywhere(least_classes(items).first().copied().unwrap_or(Class::Operate))
    }

    /// Keys are told apart by app, those of users without one by user: no app has a ':' in its code.
    fn idempotency(&self, IdempotencyKey { key, body_hash }: IdempotencyKey) -> Idempotency {
        let app = if self.app.is_empty() { format!("user:{}", self.user) } else { self.app.clone() };
        Idempotency { app, key, body_hash }
    }
}

/// What the items take, whatever they carry.
fn least_classes(items: &[SubmittedItem]) -> BTreeSet<Class> {
    let kinds = items.iter().filter_map(|item| item.kind);
    kinds.flat_map(|kind| TargetSpec::nothing().required(kind).iter().collect::<Vec<_>>()).collect()
}

/// What the audit says of items that were refused as a whole.
fn attempted(items: &[SubmittedItem]) -> AuditAction {
    let kinds: BTreeSet<&'static str> = items.iter().filter_map(|item| Some(item.kind?.as_str())).collect();
    items.iter().fold(AuditAction::new(action_of(&kinds), least_classes(items)), |deed, item| {
        deed.on(item.targets.iter().map(|target| format!("{} {}", target.host, item.key)))
    })
}

/// One kind by its name, several as operations.
fn action_of(kinds: &BTreeSet<&'static str>) -> &'static str {
    match kinds.first() {
        Some(kind) if kinds.len() == 1 => kind,
        _ => "operate",
    }
}

/// The row of a target on which the caller lacks a class, or may register but not this spec.
fn refusal(
    caller: &Caller,
    needed: Classes,
    spot: &Spot<'_>,
    key: &ProcessKey,
    carried: &TargetSpec,
) -> Option<Outcome> {
    let Some(class) = caller.first_missing(needed, spot, &key.namespace) else {
        let spec = carried.spec.as_ref().filter(|_| needed.contains(Class::Register))?;
        return caller.out_of_bounds(spot, &key.namespace, spec);
    };
    if class != Class::Register || carried.origin != Origin::Call {
        return Some(caller.refusal(class, spot, &key.namespace));
    }
    let message = messages::may_not_register_carried(caller.name(), &key.namespace, spot.named);
    Some(Outcome::new(Code::Forbidden, message, false))
}

/// The row of a host that is not known, where the caller could not touch it if it were: the same as if it were.
/// What the call carries does not count, because nothing is registered on it to be compared with.
fn unknown_refusal(caller: &Caller, kind: OperationKind, spot: &Spot<'_>, key: &ProcessKey) -> Option<Outcome> {
    if matches!(spot.named, HostRef::Unusable(_)) {
        return None;
    }
    let class = caller.first_missing(TargetSpec::nothing().required(kind), spot, &key.namespace)?;
    Some(caller.refusal(class, spot, &key.namespace))
}

fn task_item(key: &ProcessKey, kind: Option<OperationKind>, carried: TargetSpec, wait: Duration) -> TaskItem {
    let needed = match (&carried.spec, kind) {
        (Some(spec), Some(kind)) => kind.time_needed(spec),
        (None, _) | (_, None) => Duration::ZERO,
    };
    // There and back.
    let time_limit_ms = u64::try_from((needed + 2 * TRAVEL).as_millis()).expect("a bounded number of seconds");
    let register = kind.is_some_and(|kind| carried.registers(kind));
    let (is_carried, spec) = (carried.origin == Origin::Call, kind.and_then(|kind| carried.into_sent(kind)));
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    TaskItem { key: key.clone(), kind, spec, carried: is_carried, register, time_limit_ms, wait_ms }
}

/// On a host that is not known, of what is not registered, or an operation that is none: there may be any number of
/// such targets, and their rows are all that comes of them.
fn reaches_nothing(kind: Option<OperationKind>, host: Option<&HostLocation>, carried: &TargetSpec) -> bool {
    let is_unregistered_status = kind == Some(OperationKind::Status) && carried.origin == Origin::Call;
    kind.is_none() || host.is_none() || carried.spec.is_none() || is_unregistered_status
}

/// The outcome of a target that needs no agent.
fn known_outcome(
    key: &ProcessKey,
    kind: Option<OperationKind>,
    named: &HostRef,
    host: Option<&HostLocation>,
    carried: &TargetSpec,
) -> Option<Outcome> {
    let Some(kind) = kind else {
        let message = messages::op_type_is_none();
        return Some(Outcome::new(Code::IllegalOperation, message, false));
    };
    let Some(host) = host else { return Some(never_enrolled(named)) };
    if let Some(refusal) = maintenance::refusal(host, kind, clock::unix_millis()) {
        return Some(refusal);
    }
    if carried.spec.is_none() && carried.origin == Origin::Call {
        let message = messages::spec_was_not_kept();
        return Some(Outcome::new(Code::CommandFailed, message, false));
    }
    if carried.spec.is_none() && kind != OperationKind::Status {
        let message = messages::register_first(key, host.key);
        return Some(Outcome::new(Code::CommandFailed, message, false));
    }
    None
}

impl Draft {
    /// A call that is forbidden on every target is refused as a whole: it makes no task.
    fn require_some_allowed(&self, caller: &Caller) -> Result<()> {
        match self.forbidden.first() {
            Some(first) if self.forbidden.len() >= self.targets.len() => {
                Err(self.all_forbidden(caller, first.message.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The refusal of the whole call, in these words.
    fn all_forbidden(&self, caller: &Caller, message: Message) -> ControlError {
        let class = self.forbidden.first().map_or(Class::Operate, |first| first.class);
        let hosts = self.forbidden.iter().map(|forbidden| forbidden.host.clone());
        ControlError::AllForbidden { message, missing: Box::new(caller.lacking(class, hosts)) }
    }

    /// The target of the process on this host that is there already.
    fn earlier(&self, key: &ProcessKey, host: Option<&HostLocation>) -> Option<usize> {
        self.taken.get(&(key.clone(), host?.agent.clone())).copied()
    }

    /// Another name of the host of target `first`; the same must be asked for under both.
    fn join(&mut self, first: usize, item: u32, row_key: String) -> Result<()> {
        let earlier = &mut self.targets[first];
        if self.items[earlier.item as usize] != self.items[item as usize] {
            return Err(ControlError::Contradiction { first: earlier.row_key.clone(), second: row_key });
        }
        earlier.other_row_keys.push(row_key);
        Ok(())
    }

    /// The names of the rows that ask for a status, whatever else the call asks for.
    fn status_rows(&self) -> Vec<&str> {
        let is_status = |target: &&Target| self.items[target.item as usize].kind == Some(OperationKind::Status);
        let status = self.targets.iter().filter(is_status);
        status
            .flat_map(|target| std::iter::once(&target.row_key).chain(&target.other_row_keys))
            .map(String::as_str)
            .collect()
    }

    /// Whether a registration comes of it, even where nothing is sent to a host.
    fn registers(&self) -> bool {
        let is_stored = |target: &Target| target.agent.is_some() && self.items[target.item as usize].register;
        self.targets.iter().any(is_stored)
    }

    /// Status queries change nothing and leave no audit entry but of what is refused.
    fn only_status(&self) -> bool {
        self.items.iter().all(|item| item.kind == Some(OperationKind::Status))
    }

    /// What the audit says of a status query that was refused on some of its targets.
    fn refused_deed(&self) -> AuditAction {
        let named = self.forbidden.iter().map(|forbidden| &forbidden.host);
        AuditAction::new("status", self.classes.iter().copied()).on(named)
    }

    /// The one operation, or `operate` where there are several.
    fn action(&self) -> &'static str {
        action_of(&self.items.iter().filter_map(|item| Some(item.kind?.as_str())).collect())
    }

    /// What the audit says of it.
    fn deed(&self) -> AuditAction {
        let named = self.targets.iter().map(|target| {
            let host = target.host.map_or_else(|| target.row_key.clone(), |host| host.to_string());
            format!("{host} {}", self.items[target.item as usize].key)
        });
        AuditAction::new(self.action(), self.classes.iter().copied()).on(named)
    }

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
                    wait_ms: item.wait_ms,
                })
            })
            .collect()
    }
}

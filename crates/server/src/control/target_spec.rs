//! What an operation carries for a target, and which classes of permissions that needs.
//!
//! Promised: [`TargetSpec::required`] alone decides what an operation needs, and [`Specs::of`] alone distinguishes a
//! carried spec from the registered one. A spec that is not registered on a target needs `register` there, whatever
//! the operation.
//! Absent: who has which permissions (see `access`), and which hosts are meant.

use std::collections::HashMap;
use std::sync::Arc;

use proctor_model::{AgentId, Class, Classes, Control as Commands, OperationKind, Spec};

use super::types::Merged;
use super::{Before, SpecSource};

/// What one target is operated with.
#[derive(Clone, Debug)]
pub(super) struct TargetSpec {
    /// None where nothing is registered and nothing was carried, or was carried and not kept.
    pub(super) spec: Option<Arc<Spec>>,
    pub(super) origin: Origin,
}

/// Where the spec of a target comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// It is registered there, whether or not the call carries it too.
    Registered,
    /// The call carries it, and it is not known to be the registered one.
    Call,
}

impl TargetSpec {
    /// What a caller needs on the target for this operation.
    pub(super) fn required(&self, kind: OperationKind) -> Classes {
        let by_kind = match kind {
            OperationKind::Status => Class::Read,
            OperationKind::Start
            | OperationKind::Stop
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Kill
            | OperationKind::Manage
            | OperationKind::Release => Class::Operate,
        };
        let by_spec = match self.origin {
            Origin::Registered => None,
            Origin::Call => Some(Class::Register),
        };
        by_spec.into_iter().chain([by_kind]).collect()
    }

    /// Whether the spec becomes the registered one.
    pub(super) fn registers(&self, kind: OperationKind) -> bool {
        self.origin == Origin::Call && self.spec.is_some() && kind.stores_spec()
    }

    /// The spec as the agent gets it. A status query runs no command that is not registered, so it
    /// takes none along: it only says where to look.
    pub(super) fn into_sent(self, kind: OperationKind) -> Option<Arc<Spec>> {
        match (kind, self.origin, self.spec) {
            (OperationKind::Status, Origin::Call, Some(spec)) => {
                Some(Arc::new(Spec { control: Commands::default(), ..Spec::clone(&spec) }))
            }
            (_, _, spec) => spec,
        }
    }

    /// As a task keeps it.
    pub(super) fn kept(spec: Option<Arc<Spec>>, was_carried: bool) -> Self {
        Self { spec, origin: if was_carried { Origin::Call } else { Origin::Registered } }
    }

    pub(super) fn nothing() -> Self {
        Self::registered(None)
    }

    fn registered(spec: Option<&Arc<Spec>>) -> Self {
        Self { spec: spec.cloned(), origin: Origin::Registered }
    }

    fn by_call(spec: Option<&Arc<Spec>>) -> Self {
        Self { spec: spec.cloned(), origin: Origin::Call }
    }
}

/// The specs of an item's targets.
#[derive(Debug)]
pub(super) struct Specs<'a> {
    kind: OperationKind,
    source: &'a SpecSource,
    /// None: nobody asked, because the caller may register on every target and the call omits nothing.
    registered: Option<HashMap<AgentId, Arc<Spec>>>,
    /// What the call carries, with the registered parts that it omits; only where it omits any.
    merged: HashMap<AgentId, Arc<Spec>>,
}

impl<'a> Specs<'a> {
    pub(super) fn new(
        kind: OperationKind,
        source: &'a SpecSource,
        registered: Option<HashMap<AgentId, Arc<Spec>>>,
    ) -> Self {
        let merged = match (source, &registered) {
            (SpecSource::Given(given), Some(registered)) if given.omitted.any() => {
                let mut merged = Merged::new(given);
                registered.iter().map(|(agent, spec)| (agent.clone(), merged.over(Some(spec)))).collect()
            }
            (SpecSource::Given(_) | SpecSource::Registered | SpecSource::Again(_), _) => HashMap::new(),
        };
        Self { kind, source, registered, merged }
    }

    /// For the item's target `index`; `agent` is None for a host that is not known.
    pub(super) fn of(&self, index: usize, agent: Option<&AgentId>) -> TargetSpec {
        let registered = self.registered.as_ref().zip(agent).and_then(|(specs, agent)| specs.get(agent));
        match self.source {
            SpecSource::Registered => TargetSpec::registered(registered),
            // An unknown host keeps nothing of the call.
            SpecSource::Given(_) if agent.is_none() => TargetSpec::by_call(None),
            SpecSource::Given(given) => {
                let spec = agent.and_then(|agent| self.merged.get(agent)).unwrap_or(&given.spec);
                self.given(spec, registered)
            }
            SpecSource::Again(before) => match before.get(index) {
                Some(Before { spec: None, was_carried: true }) => TargetSpec::by_call(None),
                Some(Before { spec: Some(spec), was_carried: true }) if !self.kind.stores_spec() => {
                    self.given(spec, registered)
                }
                // It was registered by then: what is registered now may be a correction of it.
                Some(Before { spec: Some(spec), .. }) if registered.is_none() => TargetSpec::by_call(Some(spec)),
                Some(Before { .. }) | None => TargetSpec::registered(registered),
            },
        }
    }

    fn given(&self, spec: &Arc<Spec>, registered: Option<&Arc<Spec>>) -> TargetSpec {
        match registered {
            Some(registered) if self.is_same(spec, registered) => TargetSpec::registered(Some(registered)),
            Some(_) | None => TargetSpec::by_call(Some(spec)),
        }
    }

    /// Whether the call says nothing but what is registered.
    fn is_same(&self, given: &Spec, registered: &Spec) -> bool {
        match self.kind {
            OperationKind::Status => is_described_by(given, registered),
            OperationKind::Start
            | OperationKind::Stop
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Kill
            | OperationKind::Manage
            | OperationKind::Release => given == registered,
        }
    }
}

/// A status query needs no spec, so clients fill in as much of it as they happen to know. What it
/// leaves out does not make it another process.
fn is_described_by(given: &Spec, registered: &Spec) -> bool {
    let (ours, theirs) = (&given.identity, &registered.identity);
    let commands = |of: &Commands| {
        let Commands { start, stop, restart, reload, kill, version, health } = of.clone();
        [start, stop, restart, reload, kill, version, health]
    };
    let same_commands = commands(&given.control)
        .into_iter()
        .zip(commands(&registered.control))
        .all(|(given, registered)| given.is_none() || given == registered);
    same_commands
        && ours.proc_name == theirs.proc_name
        && ours.setup_path == theirs.setup_path
        && ours.pid_path == theirs.pid_path
}

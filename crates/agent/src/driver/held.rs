//! Hashes of what this agent has, for the hello of a session: its registrations, and the state of each process.
//!
//! Promised: a server that has the same gets nothing. Changes between hello and welcome are sent: both are compared.
//! Assignments count as in the ledger's next batch, like the newest generation seen.

use std::collections::HashMap;

use proctor_model::{AgentState, ProcessKey, Snapshot, StateHash, Usage};
use proctor_supervise::Process;
use tokio::sync::oneshot;

use super::Driver;
use super::processes::whole_key;
use crate::ledger::{Held, HeldName};

#[derive(Debug)]
pub(super) struct HeldGenerations {
    by_name: Held,
    /// What the last hello said about processes.
    greeted: Option<StateHash>,
}

impl HeldGenerations {
    pub(super) fn new(by_name: Held) -> Self {
        Self { by_name, greeted: None }
    }

    fn of(&self, name: &HeldName) -> u64 {
        self.by_name.get(name).copied().unwrap_or(0)
    }

    pub(super) fn is_as_greeted(&self, observed: StateHash) -> bool {
        self.greeted == Some(observed)
    }
}

impl Driver {
    /// It was assigned in this generation, or is no longer registered.
    pub(super) fn hold(&mut self, name: HeldName, generation: Option<u64>) {
        match generation {
            Some(generation) => self.registrations.held.by_name.insert(name.clone(), generation),
            None => self.registrations.held.by_name.remove(&name),
        };
        self.ledger.batch.held.insert(name, generation);
    }

    pub(super) fn greet(&mut self, answer: oneshot::Sender<AgentState>) {
        let state = AgentState { assigned: self.assigned_hash(), observed: self.observed_hash() };
        self.registrations.held.greeted = Some(state.observed);
        // A link that does not wait any more greets without it.
        let _ = answer.send(state);
    }

    fn registered(&self) -> impl Iterator<Item = &Process> {
        self.reported().filter(|process| process.is_registered())
    }

    fn assigned_hash(&self) -> StateHash {
        let keys: Vec<ProcessKey> = self.registered().map(whole_key).collect();
        let pools = self.usage.limits.limiting_pools();
        let of_process = |key: &ProcessKey| self.registrations.held.of(&HeldName::Process(key.clone()));
        StateHash::of_assigned(
            keys.iter().map(|key| key.numbered(of_process(key))),
            pools.iter().map(|(namespace, id)| {
                id.numbered(namespace, self.registrations.held.of(&HeldName::Pool(namespace.clone(), id.clone())))
            }),
        )
    }

    /// Of what a report would say now.
    pub(super) fn observed_hash(&self) -> StateHash {
        let unmeasured: HashMap<ProcessKey, Usage> = HashMap::new();
        let fitted = |(key, snapshot): (ProcessKey, Snapshot)| (key, snapshot.fitted());
        let all: Vec<_> = self.registered().map(|process| fitted(self.observation_of(process, &unmeasured))).collect();
        StateHash::of_observed(all.iter().map(|(key, snapshot)| (key.numbered(snapshot.digest()), snapshot.managed)))
    }
}

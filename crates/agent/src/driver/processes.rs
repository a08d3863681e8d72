//! The machines of all processes on this host, by their keys, and the instances of each.

use std::collections::{BTreeSet, HashMap};

use proctor_model::ProcessKey;
use proctor_supervise::Process;

#[derive(Debug, Default)]
pub(super) struct Processes {
    /// In boxes: a half of the table is empty.
    by_key: HashMap<ProcessKey, Box<Process>>,
    /// Of processes that have several.
    instances: HashMap<ProcessKey, BTreeSet<ProcessKey>>,
}

impl Processes {
    pub(super) fn insert(&mut self, process: Process) {
        let key = process.key().clone();
        if let Some(of) = whole(&process) {
            self.instances.entry(of).or_default().insert(key.clone());
        }
        self.by_key.insert(key, Box::new(process));
    }

    pub(super) fn remove(&mut self, key: &ProcessKey) {
        let Some(of) = self.by_key.remove(key).and_then(|process| whole(&process)) else { return };
        if let Some(instances) = self.instances.get_mut(&of) {
            instances.remove(key);
            if instances.is_empty() {
                self.instances.remove(&of);
            }
        }
    }

    pub(super) fn contains(&self, key: &ProcessKey) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn get(&self, key: &ProcessKey) -> Option<&Process> {
        self.by_key.get(key).map(|process| &**process)
    }

    pub(super) fn get_mut(&mut self, key: &ProcessKey) -> Option<&mut Process> {
        self.by_key.get_mut(key).map(|process| &mut **process)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Process> {
        self.by_key.values().map(|process| &**process)
    }

    /// The instances of a process that has several.
    pub(super) fn instances_of(&self, key: &ProcessKey) -> impl Iterator<Item = &Process> {
        self.instances.get(key).into_iter().flatten().filter_map(|key| self.get(key))
    }
}

/// What a process is an instance of.
fn whole(process: &Process) -> Option<ProcessKey> {
    let instance = process.instance()?;
    Some(ProcessKey::new(process.key().namespace.clone(), instance.of.clone()))
}

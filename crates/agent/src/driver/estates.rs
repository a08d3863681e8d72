//! Processes that were forgotten: they may live on, and leave something behind.
//!
//! Promised: the next process of that name knows of them, also after a restart of the agent, for as long as
//! something of them is there. Absent: ending anything; the machine of the next one decides that.

use proctor_model::{Leftovers, ProcessKey};
use proctor_supervise::{Elder, Process};

use super::limits::cgroup_name;
use super::{Driver, Input};

impl Driver {
    /// Takes in the machine of a process that is new here.
    pub(super) fn insert_new(&mut self, mut process: Process) {
        // What an earlier process of its name has asked for may still be answered.
        self.made += 1;
        process.number_from(self.made << 32);
        if let Some(elder) = self.estates.remove(process.key()) {
            self.batch.estates.insert(process.key().clone(), None);
            process.inherit(elder);
        }
        self.processes.insert(process);
    }

    /// The process is about to be forgotten.
    pub(super) fn keep_estate(&mut self, key: &ProcessKey) {
        if let Some(elder) = self.processes.get(key).and_then(Process::estate) {
            self.batch.estates.insert(key.clone(), Some(elder.clone()));
            self.estates.insert(key.clone(), elder);
        }
    }

    /// Asks of which forgotten processes nothing is there any more.
    pub(super) fn settle_estates(&self) {
        let is_over = |elder: &Elder| !elder.life.as_ref().is_some_and(|life| self.host.is_alive(life));
        let over = self.estates.iter().filter(|(_, elder)| is_over(elder));
        let over: Vec<(ProcessKey, Elder)> = over.map(|(key, elder)| (key.clone(), elder.clone())).collect();
        if over.is_empty() {
            return;
        }
        let (host, inbox) = (self.host.clone(), self.inbox.clone());
        self.tasks.spawn("settle estates", async move {
            for (key, elder) in over {
                let remains = remains_of(&elder);
                if host.count_remains(&cgroup_name(&key), &remains).await.is_ok_and(|count| count == 0) {
                    let _ = inbox.send(Input::EstateSettled(key, elder)).await;
                }
            }
        });
    }

    pub(super) fn estate_settled(&mut self, key: ProcessKey, elder: &Elder) {
        if self.estates.get(&key) == Some(elder) {
            self.estates.remove(&key);
            self.host.set_life(&cgroup_name(&key), None);
            self.batch.estates.insert(key, None);
        }
    }
}

fn remains_of(elder: &Elder) -> Leftovers {
    Leftovers { since: elder.since, launched: elder.launched, sessions: Vec::new(), elder: None }
}

/// What is left of a process, and of the one of its name before it.
pub(super) fn with_elder(remains: Option<Leftovers>, elder: Option<&Elder>) -> Option<Leftovers> {
    match (remains, elder.map(remains_of)) {
        (Some(own), Some(older)) => {
            let (since, launched) = (own.since.min(older.since), own.launched && older.launched);
            Some(Leftovers { since, launched, ..own })
        }
        (own, older) => own.or(older),
    }
}

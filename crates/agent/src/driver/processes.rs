//! The machines of all processes on this host, by key and by the pids of their lives, and the instances of each.
//!
//! Promised: touched processes are remembered until somebody takes them; each has one timer; two successive machines
//! with the same key never use the same request numbers.
//! Absent: handling events, and clocks.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use proctor_model::ProcessKey;
use proctor_supervise::{Process, Time};

use super::timers::Timers;

/// Without a change for this long, a storm is over.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Of the random waits of their machines: differs between hosts, stays the same on one.
    seed: u64,
    /// Touched in this turn.
    touched: HashSet<ProcessKey>,
    timers: Timers,
    /// How many were new to this agent.
    made: u64,
    /// When nothing has been touched for long enough; None: nothing was since.
    quiet_at: Option<Time>,
    /// In boxes: a half of the table is empty.
    by_key: HashMap<ProcessKey, Box<Process>>,
    /// Of processes that have several.
    instances: HashMap<ProcessKey, BTreeSet<ProcessKey>>,
    /// Whose life has that pid: nearly always one.
    by_pid: HashMap<i32, Vec<ProcessKey>>,
}

impl Processes {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Something of it may have changed.
    pub(super) fn touch(&mut self, key: ProcessKey) {
        self.touched.insert(key);
    }

    /// Those touched since; None: none were.
    pub(super) fn take_touched(&mut self, now: Time) -> Option<HashSet<ProcessKey>> {
        if self.touched.is_empty() {
            return None;
        }
        self.quiet_at = Some(now + QUIET);
        Some(std::mem::take(&mut self.touched))
    }

    /// Whether it has become quiet, once.
    pub(super) fn take_quiet(&mut self, now: Time) -> bool {
        self.quiet_at.take_if(|at| *at <= now).is_some()
    }

    /// Sets the timer of a process as its machine wants it.
    pub(super) fn set_timer(&mut self, key: &ProcessKey) {
        let at = self.get(key).and_then(Process::poll_timeout);
        self.timers.set(key, at);
    }

    /// The first whose timer has expired.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<ProcessKey> {
        self.timers.pop_due(now)
    }

    /// The next time at which there is something to do.
    pub(super) fn next(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.quiet_at).min()
    }

    /// One that is new to this agent. Requests of an earlier process with its name may still be answered.
    pub(super) fn insert_new(&mut self, mut process: Process) {
        self.made += 1;
        process.number_from(self.made << 32);
        self.insert(process);
    }

    pub(super) fn insert(&mut self, process: Process) {
        let key = process.key().clone();
        if let Some(of) = whole(&process) {
            self.instances.entry(of).or_default().insert(key.clone());
        }
        let before = self.life_of(&key);
        self.by_key.insert(key.clone(), Box::new(process));
        self.life_changed(&key, before);
    }

    fn life_of(&self, key: &ProcessKey) -> Option<i32> {
        self.get(key).and_then(Process::life).map(|life| life.pid)
    }

    /// Must be called after the life of a process may have changed; `before` is its previous pid.
    pub(super) fn life_changed(&mut self, key: &ProcessKey, before: Option<i32>) {
        let after = self.life_of(key);
        if after == before {
            return;
        }
        if let Some(pid) = before
            && let Some(keys) = self.by_pid.get_mut(&pid)
        {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.by_pid.remove(&pid);
            }
        }
        if let Some(pid) = after {
            let keys = self.by_pid.entry(pid).or_default();
            if !keys.contains(key) {
                keys.reserve_exact(1);
                keys.push(key.clone());
            }
        }
    }

    /// Those whose present life has this pid.
    pub(super) fn with_pid(&self, pid: i32) -> impl Iterator<Item = &Process> {
        self.by_pid.get(&pid).into_iter().flatten().filter_map(|key| self.get(key))
    }

    pub(super) fn remove(&mut self, key: &ProcessKey) {
        let before = self.life_of(key);
        let removed = self.by_key.remove(key);
        self.life_changed(key, before);
        let Some(of) = removed.and_then(|process| whole(&process)) else { return };
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

/// What a process is an instance of. The name it is registered under.
pub(super) fn whole_key(process: &Process) -> ProcessKey {
    whole(process).unwrap_or_else(|| process.key().clone())
}

fn whole(process: &Process) -> Option<ProcessKey> {
    let instance = process.instance()?;
    Some(ProcessKey::new(process.key().namespace.clone(), instance.of.clone()))
}

#[cfg(test)]
mod tests {
    use proctor_model::samples::spec;
    use proctor_model::{BootId, Incarnation, Probe};
    use proctor_supervise::{Event, Time};

    use super::*;

    fn see(processes: &mut Processes, key: &ProcessKey, pid: i32) {
        let before = processes.life_of(key);
        let life = Incarnation { boot: BootId::from("b"), pid, start_ticks: 1, pidfd_inode: None };
        let process = processes.get_mut(key).unwrap();
        process.handle(Time::default(), Event::Observed(Probe::Running(life)));
        processes.life_changed(key, before);
    }

    #[test]
    fn processes_are_found_by_the_pid_of_their_present_life() {
        let keys: [ProcessKey; 2] = ["ns/a", "ns/b"].map(|key| key.parse().unwrap());
        let mut processes = Processes::default();
        keys.iter().for_each(|key| processes.insert(Process::new(key.clone(), spec(|_| {}), 7)));
        let found = |processes: &Processes, pid| -> Vec<ProcessKey> {
            processes.with_pid(pid).map(|process| process.key().clone()).collect()
        };

        see(&mut processes, &keys[0], 10);
        see(&mut processes, &keys[1], 10);
        assert_eq!(found(&processes, 10), keys);
        see(&mut processes, &keys[0], 11);
        assert_eq!((found(&processes, 10), found(&processes, 11)), (vec![keys[1].clone()], vec![keys[0].clone()]));
        processes.remove(&keys[1]);

        assert_eq!((found(&processes, 10), processes.by_pid.len()), (vec![], 1));
    }

    #[test]
    fn touched_processes_are_taken_once_and_it_becomes_quiet_once() {
        let at = |secs| Time::since_boot(Duration::from_secs(secs));
        let key: ProcessKey = "ns/a".parse().unwrap();
        let mut processes = Processes::new(7);
        assert!(processes.take_touched(at(1)).is_none() && processes.next().is_none());

        processes.touch(key.clone());
        processes.touch(key.clone());

        assert_eq!(processes.take_touched(at(1)), Some(HashSet::from([key])));
        assert_eq!((processes.take_touched(at(2)), processes.next()), (None, Some(at(6))));
        assert!(!processes.take_quiet(at(5)) && processes.take_quiet(at(6)) && !processes.take_quiet(at(7)));
        assert_eq!(processes.next(), None);
    }
}

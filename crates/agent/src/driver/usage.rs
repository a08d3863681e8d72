//! Records what processes use, and answers queries.
//!
//! Promised: the history gets the samples taken for limits and, for the other processes, one a minute, with or
//! without a server. A congested link gets no answers.
//! Absent: the rings and files (see `history`).

use std::collections::HashMap;
use std::time::Duration;

use proctor_model::{ProcessKey, Usage, UsageHistory, UsageKept, UsageRange};
use proctor_runtime::clock;
use proctor_supervise::{Process, Time};
use proctor_wire::FromAgent;
use tokio::sync::mpsc;

use super::Driver;
use super::limits::{LimitMonitor, Verdict};
use super::processes::Processes;
use crate::history::{History, Keeper, Rate, Reading};

/// Messages that may wait on the link before answers are dropped: one may take 97 kB.
const BACKLOG_MAX: usize = 16;

/// Unix seconds.
pub(super) fn wall_clock() -> u64 {
    u64::try_from(clock::unix_millis() / 1000).unwrap_or(0)
}

/// What processes use: watched for limits, recorded for display.
#[derive(Debug)]
pub(super) struct UsageMonitor {
    pub(super) limits: LimitMonitor,
    pub(super) history: History,
    keeper: Keeper,
}

impl UsageMonitor {
    pub(super) fn new(limits: LimitMonitor, keeper: Keeper) -> Self {
        Self { limits, history: History::default(), keeper }
    }

    /// Samples what is due and records it.
    pub(super) fn turn(&mut self, now: Time, boot_time: Duration, processes: &Processes) -> Vec<Verdict> {
        self.limits.turn(now, boot_time, processes, &mut self.history)
    }

    /// The process is forgotten, with its files on disk.
    pub(super) fn forget(&mut self, key: &ProcessKey, now: Time) {
        self.limits.forget(key, now);
        self.history.forget(key);
        self.keeper.remove(key.clone());
    }

    /// Everything that is not on disk yet, at the end of the agent.
    pub(super) fn write_all(&mut self, now: u64) {
        self.keeper.write_all(&mut self.history, now);
    }

    fn write(&mut self, processes: &Processes, now: u64) {
        self.keeper.write(&mut self.history, now);
        self.retain(processes, now);
    }

    /// Removes the files of others from disk.
    fn retain(&mut self, processes: &Processes, now: u64) {
        if self.keeper.must_retain() {
            self.keeper.retain(processes.all().map(|process| process.key().clone()), now);
        }
    }
}

impl Driver {
    pub(super) fn start_history(&mut self) {
        self.usage.keeper.start(&self.host, self.workers.tasks());
        self.usage.retain(&self.processes, wall_clock());
    }

    /// For those whose limits are watched, there are better samples already.
    pub(super) fn record_measured(&mut self, measured: &HashMap<ProcessKey, Usage>) {
        let now = wall_clock();
        for (key, usage) in measured {
            if let Some(life) = self.processes.get(key).and_then(Process::shown) {
                let reading = Reading { rate: Rate::Slow, cpu: usage.cpu_percent, memory: usage.memory_percent };
                self.usage.history.record(now, key, life, reading);
            }
        }
    }

    pub(super) fn write_history(&mut self) {
        self.usage.write(&self.processes, wall_clock());
    }

    pub(super) fn query_usage(&mut self, request: u64, key: &ProcessKey, range: UsageRange) {
        let now = wall_clock();
        let Some(link) = self.outbox.link().cloned() else { return };
        let answer = move |history| answer(&link, FromAgent::UsageHistory { request, history });
        if !self.processes.contains(key) {
            return answer(UsageHistory::empty(UsageKept::NotRegistered, range.step_min()));
        }
        match range {
            UsageRange::Hour => answer(self.usage.history.hour(key, now)),
            UsageRange::Week => self.usage.keeper.read(&self.usage.history, key, now, Box::new(answer)),
        }
    }
}

/// Dropped if the link is congested: the requester times out, and outcomes go first.
pub(super) fn answer(link: &mpsc::Sender<FromAgent>, message: FromAgent) {
    if link.max_capacity() - link.capacity() < BACKLOG_MAX {
        drop(link.try_send(message));
    }
}

//! Recording what processes use, and answering who asks.
//!
//! Promised: the history gets the samples of the limits and, of the other processes, those of every minute, which are
//! taken with or without a server. A link that is behind is not burdened with answers. Absent: the rings and files (see
//! `history`).

use std::collections::HashMap;

use proctor_model::{ProcessKey, Usage, UsageHistory, UsageKept, UsageRange};
use proctor_runtime::clock;
use proctor_supervise::Process;
use proctor_wire::FromAgent;
use tokio::sync::mpsc;

use super::Driver;
use crate::history::{Rate, Reading};

/// Messages that may wait on the link before answers are dropped: one may take 97 kB.
const BACKLOG_MAX: usize = 16;

/// Unix seconds.
pub(super) fn wall_clock() -> u64 {
    u64::try_from(clock::unix_millis() / 1000).unwrap_or(0)
}

impl Driver {
    pub(super) fn start_history(&mut self) {
        self.keeper.start(&self.host, &self.tasks);
        self.retain_history();
    }

    fn retain_history(&mut self) {
        if self.keeper.must_retain() {
            self.keeper.retain(self.processes.all().map(|process| process.key().clone()), wall_clock());
        }
    }

    /// Of those whose limits are watched, better samples are there already.
    pub(super) fn record_measured(&mut self, measured: &HashMap<ProcessKey, Usage>) {
        let now = wall_clock();
        for (key, usage) in measured {
            if let Some(life) = self.processes.get(key).and_then(Process::shown) {
                let reading = Reading { rate: Rate::Slow, cpu: usage.cpu_percent, memory: usage.memory_percent };
                self.history.record(now, key, life, reading);
            }
        }
    }

    pub(super) fn write_history(&mut self) {
        self.keeper.write(&mut self.history, wall_clock());
        self.retain_history();
    }

    pub(super) fn query_usage(&mut self, request: u64, key: &ProcessKey, range: UsageRange) {
        let now = wall_clock();
        let Some(link) = self.outbox.link().cloned() else { return };
        let answer = move |history| answer(&link, FromAgent::UsageHistory { request, history });
        if !self.processes.contains(key) {
            return answer(UsageHistory::empty(UsageKept::NotRegistered, range.step_min()));
        }
        match range {
            UsageRange::Hour => answer(self.history.hour(key, now)),
            UsageRange::Week => self.keeper.read(&self.history, key, now, Box::new(answer)),
        }
    }
}

/// Dropped where the link is behind: who asks gives up in time, and outcomes go first.
pub(super) fn answer(link: &mpsc::Sender<FromAgent>, message: FromAgent) {
    if link.max_capacity() - link.capacity() < BACKLOG_MAX {
        drop(link.try_send(message));
    }
}

//! Recording what processes use, and answering who asks.
//!
//! Promised: nothing is measured for the history alone: it gets the samples of the limits, and of the others what the
//! report of every minute has measured, with or without a server. Absent: the rings and files (see `history`).

use std::collections::HashMap;

use proctor_model::{ProcessKey, Usage, UsageHistory, UsageKept, UsageRange};
use proctor_runtime::clock;
use proctor_supervise::Process;
use proctor_wire::FromAgent;

use super::Driver;
use crate::history::{Rate, Reading};

/// Unix seconds.
pub(super) fn wall_clock() -> u64 {
    u64::try_from(clock::unix_millis() / 1000).unwrap_or(0)
}

impl Driver {
    pub(super) fn start_history(&mut self) {
        self.keeper.start(&self.host, &self.tasks);
        self.keeper.retain(self.processes.all().map(|process| process.key().clone()));
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
        if self.keeper.has_missed_removal() {
            self.keeper.retain(self.processes.all().map(|process| process.key().clone()));
        }
    }

    pub(super) fn query_usage(&mut self, request: u64, key: &ProcessKey, range: UsageRange) {
        let now = wall_clock();
        if !self.processes.contains(key) {
            let history = UsageHistory::empty(UsageKept::NotRegistered, range.step_min());
            return self.send(FromAgent::UsageHistory { request, history });
        }
        match range {
            UsageRange::Hour => {
                let history = self.history.hour(key, now);
                self.send(FromAgent::UsageHistory { request, history });
            }
            UsageRange::Week => {
                let Some(link) = self.link.clone() else { return };
                // A link without room drops it: who asks gives up in time.
                let answer = move |history| drop(link.try_send(FromAgent::UsageHistory { request, history }));
                self.keeper.read(&self.history, key, now, Box::new(answer));
            }
        }
    }
}

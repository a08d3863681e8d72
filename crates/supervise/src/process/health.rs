//! The health command: run from time to time beside a running process.
//!
//! One failure means little; `failures` in a row make it unhealthy, which counts as an abnormal end
//! under the restart policy. Nothing is asked during the grace after a start, nor while an
//! operation is under way.

use proctor_model::{CommandEnd, CommandResult, Exit};

use super::work::{Eviction, Work};
use super::{Action, Notice, Process, Ticket};
use crate::Time;

/// What the reason for people holds of the command's output.
const REASON_CHARS_MAX: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Health {
    /// The next check; None without a life or without a command.
    next: Option<Time>,
    /// The check under way.
    checking: Option<Ticket>,
    checks: Ticket,
    failures: u32,
    healthy: Option<bool>,
    /// When it was last found well.
    well_at: Option<Time>,
}

impl Health {
    pub(super) fn word(&self) -> &'static str {
        match self.healthy {
            Some(true) => "healthy",
            Some(false) => "unhealthy",
            None => "",
        }
    }

    pub(super) fn is_ill(&self) -> bool {
        self.healthy == Some(false)
    }

    pub(super) fn last_well(&self) -> Option<Time> {
        self.well_at
    }
}

impl Process {
    pub(super) fn health_timeout(&self) -> Option<Time> {
        self.health.next.filter(|_| matches!(self.work, Work::Rest))
    }

    /// A life begins: the first check comes after its grace.
    pub(super) fn expect_health(&mut self, now: Time) {
        // Answers to checks of an earlier life must not count for this one.
        let checks = self.health.checks;
        let policy = &self.record.spec.policy.health;
        let next = self.record.spec.control.health.as_ref().map(|_| now + policy.grace.duration());
        self.health = Health { next, checks, ..Health::default() };
    }

    pub(super) fn check_health(&mut self, now: Time) {
        let is_due = self.health_timeout().is_some_and(|at| at <= now);
        let Some(line) = self.record.spec.control.health.clone().filter(|_| is_due) else { return };
        self.health.next = None; // until the answer
        self.health.checks += 1;
        self.health.checking = Some(self.health.checks);
        self.actions.push_back(Action::Check {
            ticket: self.health.checks,
            line,
            spec: self.record.spec.clone(),
            timeout: self.record.spec.policy.health.timeout.duration(),
        });
    }

    pub(super) fn checked(&mut self, now: Time, ticket: Ticket, end: &CommandEnd) {
        if self.health.checking != Some(ticket) {
            return;
        }
        self.health.checking = None;
        let policy = self.record.spec.policy.health;
        self.health.next = Some(now + policy.interval.duration());
        if end.result == CommandResult::Postponed {
            return; // it was not asked, so nothing is known
        }
        if end.result == CommandResult::Exited(Exit::Code(0)) {
            self.health.failures = 0;
            self.health.well_at = Some(now);
            return self.set_health(true, "");
        }
        self.health.failures += 1;
        if self.health.failures < policy.failures {
            return;
        }
        self.set_health(false, &reason_of(end));
        let life = self.record.life.clone().filter(|_| self.may_be_evicted());
        if let Some(life) = life {
            self.reason = format!("ended as unhealthy: {}", reason_of(end));
            self.evict(now, life, Eviction::Unhealthy);
        }
    }

    fn set_health(&mut self, healthy: bool, reason: &str) {
        let before = self.health.healthy.replace(healthy);
        // A first good word is no change.
        if before.unwrap_or(true) != healthy {
            self.actions.push_back(Action::Announce(Notice::HealthChanged { healthy, reason: reason.to_owned() }));
        }
    }
}

fn reason_of(end: &CommandEnd) -> String {
    let how = match &end.result {
        CommandResult::Exited(exit) => exit.to_string(),
        CommandResult::TimedOut => "timed out".to_owned(),
        CommandResult::Cancelled | CommandResult::Lost => "its end is not known".to_owned(),
        CommandResult::Postponed => "postponed".to_owned(),
        CommandResult::NotRun(reason) => reason.clone(),
    };
    let said: String = end.output.trim().chars().take(REASON_CHARS_MAX).collect();
    if said.is_empty() { format!("health_cmd: {how}") } else { format!("health_cmd: {how}: {said}") }
}

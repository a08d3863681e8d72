//! The health command, which runs periodically beside a running process.
//!
//! One failure means little; `failures` in a row make the process unhealthy, which counts as an abnormal exit under
//! the restart policy. A command that cannot be run (exit 126 or 127, or no such user) says nothing about the
//! process: that is a state of its own and ends nothing. Nothing is checked during the grace period after a start,
//! nor while an operation is in progress. A changed command takes effect in the current life; results of a check of
//! an earlier life or command are ignored.

use proctor_model::{CommandExit, CommandResult, Exit, Message, Spec, messages};

use super::activity::{Activity, EvictionReason};
use super::{Action, HealthState, Notice, Process, Ticket};
use crate::Time;

/// How much of the command's output the reason quotes.
const REASON_CHARS_MAX: usize = 200;
/// The shell's exit codes for a command that it found but could not execute, and did not find.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

#[derive(Debug, Default)]
pub(super) struct Health {
    /// The next check; None without a life or without a command.
    next: Option<Time>,
    /// The check in progress.
    checking: Option<Ticket>,
    /// Counts over all lives: the result of an earlier one never has the ticket of a later one.
    checks: Ticket,
    failures: u32,
    state: Option<HealthState>,
    /// When it was last found healthy.
    well_at: Option<Time>,
}

impl Health {
    pub(super) fn word(&self) -> &'static str {
        self.state.map_or("", HealthState::as_str)
    }

    pub(super) fn is_unhealthy(&self) -> bool {
        self.state == Some(HealthState::Unhealthy)
    }

    /// Nothing is known, and outstanding results do not count.
    pub(super) fn reset(&mut self) {
        *self = Self { checks: self.checks, ..Self::default() };
    }

    pub(super) fn number_from(&mut self, first: Ticket) {
        self.checks = first;
    }

    pub(super) fn last_well(&self) -> Option<Time> {
        self.well_at
    }
}

impl Process {
    pub(super) fn health_timeout(&self) -> Option<Time> {
        self.health.next.filter(|_| matches!(self.work, Activity::Idle))
    }

    /// A life begins: the first check comes after its grace.
    pub(super) fn expect_health(&mut self, now: Time) {
        self.health.reset();
        let grace = self.record.spec.policy.health.grace.duration();
        self.health.next = self.record.spec.control.health.as_ref().map(|_| now + grace);
    }

    /// The spec has changed: the current life is checked by the new command, or no longer.
    pub(super) fn follow_health(&mut self, now: Time, before: &Spec) {
        let (spec, since) = (&self.record.spec, self.running_since);
        let is_same = before.control.health == spec.control.health && before.policy.health == spec.policy.health;
        let Some(since) = since.filter(|_| !is_same) else { return };
        let first = since + spec.policy.health.grace.duration();
        let is_asked = spec.control.health.is_some();
        self.health.reset();
        self.health.next = is_asked.then(|| first.max(now));
    }

    pub(super) fn check_health(&mut self, now: Time) {
        let is_due = self.health_timeout().is_some_and(|at| at <= now);
        let Some(line) = self.record.spec.control.health.clone().filter(|_| is_due) else { return };
        self.health.next = None; // until the answer
        self.health.checks += 1;
        self.health.checking = Some(self.health.checks);
        self.actions.push_back(Action::CheckHealth {
            ticket: self.health.checks,
            line,
            spec: self.record.spec.clone(),
            timeout: self.record.spec.policy.health.timeout.duration(),
        });
    }

    pub(super) fn checked(&mut self, now: Time, ticket: Ticket, end: &CommandExit) {
        if self.health.checking != Some(ticket) {
            return;
        }
        self.health.checking = None;
        let policy = self.record.spec.policy.health;
        self.health.next = Some(now + policy.interval.duration());
        match &end.result {
            CommandResult::Exited(Exit::Code(0)) => {
                self.health.failures = 0;
                self.health.well_at = Some(now);
                self.set_health(HealthState::Healthy, Message::default());
            }
            CommandResult::Exited(Exit::Code(NOT_EXECUTABLE | NOT_FOUND)) | CommandResult::NotStarted(_) => {
                self.health.failures = 0; // no longer in a row
                self.set_health(HealthState::CannotRun, reason_of(end));
            }
            CommandResult::Exited(Exit::Code(_) | Exit::Signal(_)) | CommandResult::TimedOut => {
                self.mark_unhealthy(now, end, policy.failures);
            }
            // Nothing was checked, or the result was lost: nothing is known.
            CommandResult::NoSlot | CommandResult::Cancelled | CommandResult::ExitUnknown => {}
        }
    }

    fn mark_unhealthy(&mut self, now: Time, end: &CommandExit, failures_max: u32) {
        self.health.failures += 1;
        if self.health.failures < failures_max {
            return;
        }
        self.set_health(HealthState::Unhealthy, reason_of(end));
        let life = self.record.life.clone().filter(|_| self.may_be_evicted());
        if let Some(life) = life {
            self.reason = messages::ended_as_unhealthy(reason_of(end));
            self.evicted_for = self.reason.clone();
            self.evict(now, life, EvictionReason::Unhealthy);
        }
    }

    fn set_health(&mut self, state: HealthState, reason: Message) {
        let before = self.health.state.replace(state);
        // A first good result is no change.
        if before.unwrap_or(HealthState::Healthy) != state {
            self.actions.push_back(Action::Notify(Notice::HealthChanged { state, reason }));
        }
    }
}

fn reason_of(end: &CommandExit) -> Message {
    let how = match &end.result {
        CommandResult::Exited(exit) => exit.message(),
        CommandResult::TimedOut => messages::timed_out(),
        CommandResult::Cancelled | CommandResult::ExitUnknown => messages::end_not_known(),
        CommandResult::NoSlot => messages::postponed(),
        CommandResult::NotStarted(reason) => messages::because(reason),
    };
    let said: String = end.output.trim().chars().take(REASON_CHARS_MAX).collect();
    if said.is_empty() { messages::health_command(how) } else { messages::health_command_said(how, said) }
}

//! Turns what machines announce into events for the server and log lines.

use std::time::Duration;

use proctor_model::{CommandResult, EventKind, Exit, Incarnation, Message, POOL_DETAIL, ProcessKey, messages};
use proctor_runtime::clock;
use proctor_supervise::{HealthState, LimitBreach, Notice, Time};

use super::Driver;
use super::limits::Verdict;
use crate::spool::Draft;

/// Of refused commands there is one event in this time, however many come.
const REFUSALS_PERIOD: Duration = Duration::from_secs(600);

/// Commands that were refused since the last event about them.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: u64,
    next_at: Option<Time>,
}

impl Refusals {
    /// How many an event should report; None if it is too early for one.
    fn due(&mut self, now: Time) -> Option<u64> {
        self.count += 1;
        if self.next_at.is_some_and(|at| now < at) {
            return None;
        }
        self.next_at = Some(now + REFUSALS_PERIOD);
        Some(std::mem::take(&mut self.count))
    }
}

impl Driver {
    pub(super) fn publish_notice(&mut self, key: &ProcessKey, notice: &Notice) {
        let Some(spec) = self.processes.get(key).map(|process| process.spec().clone()) else { return };
        let name = spec.identity.proc_name.as_str();
        let mut draft = draft_of(key, name, notice);
        if let Notice::RunMissed { .. } = notice {
            draft = draft.detail("skipped", self.schedules.count_missed(key));
        }
        tracing::info!(process = %key, notice = ?notice, "notice");
        self.publish_event(draft.of(key, &spec));
    }

    pub(super) fn publish_warning(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Descriptors { key, open, limit } => {
                let Some(spec) = self.processes.get(key).map(|process| process.spec().clone()) else { return };
                let content = messages::too_many_descriptors(key, open, limit);
                tracing::warn!(process = %key, open, limit, "too many open descriptors");
                self.publish_event(Draft::new(EventKind::FdWarning, content).of(key, &spec).detail("open", open));
            }
            Verdict::PoolWarning { pool, content, would_end } => {
                tracing::warn!(pool = %pool.id, namespace = %pool.namespace, content = content.as_str(), "pool");
                let mut draft = Draft::new(EventKind::PoolWarning, content.clone())
                    .detail(POOL_DETAIL, &pool.id)
                    .detail("namespace", &pool.namespace);
                if let Some((victim, ranking)) = would_end {
                    draft = draft.detail("dry_run", true).detail("victim", victim).detail("ranking", ranking);
                }
                self.publish_event(draft);
            }
            Verdict::Exceeded { .. } => {} // its machine announces it
        }
    }

    pub(super) fn skipped(&mut self, key: &ProcessKey, planned: i64, skipped: u64) {
        let Some(spec) = self.processes.get(key).map(|process| process.spec().clone()) else { return };
        let content = messages::run_was_skipped(key, planned, messages::earlier_run_not_over());
        tracing::warn!(process = %key, planned, skipped, "scheduled run skipped");
        let draft = Draft::new(EventKind::ScheduleSkipped, content).of(key, &spec);
        self.publish_event(draft.detail("planned", planned).detail("skipped", skipped));
    }

    pub(super) fn command_refused(&mut self, server: &str, reason: &str) {
        let Some(count) = self.outbox.refusals.due(self.now()) else { return };
        tracing::error!(server, reason, count, "rejected message from server");
        let content = messages::link_message_refused(server, reason);
        let draft = Draft::new(EventKind::CommandRefused, content);
        self.publish_event(draft.detail("server", server).detail("reason", reason).detail("count", count));
    }

    /// Numbers an event, keeps it and sends it.
    pub(super) fn publish_event(&mut self, draft: Draft) {
        let event = self.outbox.events.push(draft, clock::unix_millis());
        self.telemetry.metrics.event(event.kind);
        self.ledger.batch.events.push(event);
    }

    pub(super) fn events_seen(&mut self, up_to: u64) {
        self.outbox.events.seen(up_to);
        self.ledger.batch.events_seen = self.ledger.batch.events_seen.max(Some(up_to));
    }

    /// To a new session.
    pub(super) fn tell_dropped_events(&mut self) {
        self.ledger.batch.events.extend(self.outbox.events.tell_dropped(clock::unix_millis()));
    }
}

fn draft_of(key: &ProcessKey, name: &str, notice: &Notice) -> Draft {
    match notice {
        Notice::Started { life } => {
            Draft::new(EventKind::Started, messages::process_was_started(key, life.pid)).detail("pid", life.pid)
        }
        Notice::Adopted { life } => {
            Draft::new(EventKind::Adopted, messages::process_was_found(key, life.pid)).detail("pid", life.pid)
        }
        Notice::PidChanged { old, new } => {
            let content = messages::pid_has_changed(key, new.pid, old.pid);
            Draft::new(EventKind::PidChanged, content).detail("old_pid", old.pid).detail("pid", new.pid)
        }
        Notice::Exited { life, exit } => exited(key, life, *exit),
        Notice::RestartSucceeded { attempt } => {
            let content = messages::restart_succeeded(name);
            Draft::new(EventKind::RestartSucceeded, content).detail("attempt", attempt)
        }
        Notice::RestartFailed { attempt, reason } => {
            let content = messages::restart_failed(name, reason.clone());
            Draft::new(EventKind::RestartFailed, content).detail("attempt", attempt)
        }
        Notice::GaveUp { attempts, reason } => {
            let content = messages::no_longer_managed(name, attempts, reason.clone());
            Draft::new(EventKind::CancelRestart, content).detail("attempts", attempts)
        }
        Notice::Exceeded(excess) => exceeded(name, excess),
        Notice::HealthChanged { state, reason } => {
            let content = match state {
                HealthState::Healthy => messages::healthy_again(key),
                HealthState::Unhealthy => messages::unhealthy(key, reason.clone()),
                HealthState::CannotRun => messages::health_not_known(key, reason.clone()),
            };
            let draft = Draft::new(EventKind::HealthChanged, content).detail("state", state.as_str());
            match state {
                HealthState::Healthy => draft.detail("healthy", true),
                HealthState::Unhealthy => draft.detail("healthy", false),
                HealthState::CannotRun => draft,
            }
        }
        Notice::RunEnded { result } => Draft::new(EventKind::Exited, run_end(key, result)).detail("scheduled", true),
        Notice::RunMissed { planned, reason } => {
            let content = messages::run_was_skipped(key, planned, reason.clone());
            Draft::new(EventKind::ScheduleSkipped, content).detail("planned", planned)
        }
    }
}

/// How a run by schedule ended, as far as that is known.
fn run_end(key: &ProcessKey, result: &CommandResult) -> Message {
    match result {
        CommandResult::Exited(exit) => messages::scheduled_run_ended(key, exit.message()),
        CommandResult::TimedOut => messages::scheduled_run_took_too_long(key),
        CommandResult::Cancelled => messages::scheduled_run_was_killed(key),
        CommandResult::ExitUnknown => messages::scheduled_run_end_not_known(key),
        CommandResult::NotStarted(reason) => messages::scheduled_run_did_not_run(key, messages::because(reason)),
        CommandResult::NoSlot => messages::scheduled_run_did_not_run(key, messages::too_many_commands()),
    }
}

fn exited(key: &ProcessKey, life: &Incarnation, exit: Option<Exit>) -> Draft {
    let content = match exit {
        Some(exit) => messages::process_has_ended_with(key, life.pid, exit.message()),
        None => messages::process_has_ended(key, life.pid),
    };
    let how = exit.map_or_else(String::new, |exit| exit.to_string());
    Draft::new(EventKind::Exited, content).detail("pid", life.pid).detail("exit", how)
}

fn exceeded(name: &str, excess: &LimitBreach) -> Draft {
    let LimitBreach { breach, pool, .. } = excess;
    let (usage, limit) = (format!("{:.2}", breach.usage), format!("{:.2}", breach.limit));
    let (kind, content) = match pool {
        Some(pool) => {
            (EventKind::PoolLimitExceeded, messages::over_pool_limit(name, breach.resource, usage, &pool.id, limit))
        }
        None => (EventKind::LimitExceeded, messages::over_own_limit(name, breach.resource, usage, limit)),
    };
    let draft = Draft::new(kind, content)
        .detail("resource", breach.resource)
        .detail("usage", format!("{:.3}", breach.usage))
        .detail("limit", format!("{:.3}", breach.limit));
    match pool {
        Some(pool) => draft.detail(POOL_DETAIL, &pool.id).detail("ranking", &pool.ranking),
        None => draft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_end_nobody_has_seen_is_not_said_not_to_have_run() {
        let key = "web/nightly".parse().unwrap();
        let unknown = run_end(&key, &CommandResult::ExitUnknown);
        let not_run = run_end(&key, &CommandResult::NotStarted("user 'x' does not exist".to_owned()));

        assert_eq!(unknown, "the scheduled run of web/nightly ended with an unknown result");
        assert_eq!(not_run, "the scheduled run of web/nightly did not run: user 'x' does not exist");
    }

    #[test]
    fn refusals_are_told_at_once_and_then_counted_for_a_while() {
        let at = |secs| Time::since_boot(Duration::from_secs(secs));
        let mut refusals = Refusals::default();

        let told = [1, 2, 3, 600, 601, 602].map(|secs| refusals.due(at(secs)));

        assert_eq!(told, [Some(1), None, None, None, Some(4), None]);
    }
}

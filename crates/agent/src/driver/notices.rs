//! What machines announce, as events for the server and lines in the log.

use std::time::Duration;

use proctor_model::{CommandResult, EventKind, Incarnation, POOL_DETAIL, ProcessKey};
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
    /// How many an event shall tell of; None where it is too early for one.
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
                let content = format!("process {key} has {open} open descriptors, more than its {limit}");
                tracing::warn!(process = %key, open, limit, "too many open descriptors");
                self.publish_event(Draft::new(EventKind::FdWarning, content).of(key, &spec).detail("open", open));
            }
            Verdict::PoolWarning { pool, content, would_end } => {
                tracing::warn!(pool = %pool.id, namespace = %pool.namespace, content, "pool");
                let mut draft = Draft::new(EventKind::PoolWarning, content.clone()).detail(POOL_DETAIL, &pool.id);
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
        let content = format!("the run of {key} planned for {planned} was skipped: the one before is not over");
        tracing::warn!(process = %key, planned, skipped, "a planned run was skipped");
        let draft = Draft::new(EventKind::ScheduleSkipped, content).of(key, &spec);
        self.publish_event(draft.detail("planned", planned).detail("skipped", skipped));
    }

    pub(super) fn command_refused(&mut self, server: &str, reason: &str) {
        let Some(count) = self.refusals.due(self.now()) else { return };
        tracing::error!(server, reason, count, "refused what came over the link");
        let content = format!("refused what came over the link from {server}: {reason}");
        let draft = Draft::new(EventKind::CommandRefused, content);
        self.publish_event(draft.detail("server", server).detail("reason", reason).detail("count", count));
    }

    /// Numbers an event, keeps it and sends it on its way.
    pub(super) fn publish_event(&mut self, draft: Draft) {
        let event = self.outbox.events.push(draft, clock::unix_millis());
        self.metrics.event(event.kind);
        self.batch.events.push(event);
    }

    pub(super) fn events_seen(&mut self, up_to: u64) {
        self.outbox.events.seen(up_to);
        self.batch.events_seen = self.batch.events_seen.max(Some(up_to));
    }

    /// To a new session.
    pub(super) fn tell_dropped_events(&mut self) {
        self.batch.events.extend(self.outbox.events.tell_dropped(clock::unix_millis()));
    }
}

fn draft_of(key: &ProcessKey, name: &str, notice: &Notice) -> Draft {
    match notice {
        Notice::Started { life } => {
            Draft::new(EventKind::Started, format!("process {key} was started as {}", life.pid)).detail("pid", life.pid)
        }
        Notice::Adopted { life } => {
            Draft::new(EventKind::Adopted, format!("process {key} runs as {}", life.pid)).detail("pid", life.pid)
        }
        Notice::PidChanged { old, new } => {
            let content = format!("process {key} runs as {} now, it was {}", new.pid, old.pid);
            Draft::new(EventKind::PidChanged, content).detail("old_pid", old.pid).detail("pid", new.pid)
        }
        Notice::Exited { life, exit } => exited(key, life, exit.as_ref().map(ToString::to_string)),
        Notice::RestartSucceeded { attempt } => {
            let content = format!("check {name} not running, and restart it success");
            Draft::new(EventKind::RestartSucceeded, content).detail("attempt", attempt)
        }
        Notice::RestartFailed { attempt, reason } => {
            let content = format!("check {name} not running, and restart it failed: {reason}");
            Draft::new(EventKind::RestartFailed, content).detail("attempt", attempt)
        }
        Notice::GaveUp { attempts, reason } => {
            let content = format!("{name} is no longer managed after {attempts} failed restarts: {reason}");
            Draft::new(EventKind::CancelRestart, content).detail("attempts", attempts)
        }
        Notice::Exceeded(excess) => exceeded(name, excess),
        Notice::HealthChanged { state, reason } => {
            let content = match state {
                HealthState::Healthy => format!("process {key} is healthy again"),
                HealthState::Unhealthy => format!("process {key} is unhealthy: {reason}"),
                HealthState::CannotRun => format!("the health of process {key} is not known: {reason}"),
            };
            let draft = Draft::new(EventKind::HealthChanged, content).detail("state", state.as_str());
            match state {
                HealthState::Healthy => draft.detail("healthy", true),
                HealthState::Unhealthy => draft.detail("healthy", false),
                HealthState::CannotRun => draft,
            }
        }
        Notice::RunEnded { result } => {
            let how = run_end(result);
            Draft::new(EventKind::Exited, format!("the scheduled run of {key} {how}")).detail("scheduled", true)
        }
        Notice::RunMissed { planned, reason } => {
            let content = format!("the run of {key} planned for {planned} was skipped: {reason}");
            Draft::new(EventKind::ScheduleSkipped, content).detail("planned", planned)
        }
    }
}

/// How a run by schedule ended, as far as that is known.
fn run_end(result: &CommandResult) -> String {
    match result {
        CommandResult::Exited(exit) => format!("ended with {exit}"),
        CommandResult::TimedOut => "took too long and was killed".to_owned(),
        CommandResult::Cancelled => "was killed".to_owned(),
        CommandResult::ExitUnknown => "ended; how is not known".to_owned(),
        CommandResult::NotStarted(reason) => format!("did not run: {reason}"),
        CommandResult::NoSlot => "did not run: too many commands".to_owned(),
    }
}

fn exited(key: &ProcessKey, life: &Incarnation, exit: Option<String>) -> Draft {
    let how = exit.clone().map_or_else(String::new, |exit| format!(" with {exit}"));
    let draft = Draft::new(EventKind::Exited, format!("process {key} ({}) ended{how}", life.pid));
    draft.detail("pid", life.pid).detail("exit", exit.unwrap_or_default())
}

fn exceeded(name: &str, excess: &LimitBreach) -> Draft {
    let LimitBreach { breach, pool, ranking, .. } = excess;
    let (kind, whose) = match pool {
        Some(pool) => (EventKind::PoolLimitExceeded, format!("the limit of pool {pool}")),
        None => (EventKind::LimitExceeded, "its limit".to_owned()),
    };
    let content = format!(
        "{name} is ended: {} use of {:.2} % exceeds {whose} of {:.2} %",
        breach.resource, breach.usage, breach.limit
    );
    let draft = Draft::new(kind, content)
        .detail("resource", breach.resource)
        .detail("usage", format!("{:.3}", breach.usage))
        .detail("limit", format!("{:.3}", breach.limit));
    let draft = match pool {
        Some(pool) => draft.detail(POOL_DETAIL, pool),
        None => draft,
    };
    if ranking.is_empty() { draft } else { draft.detail("ranking", ranking) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_end_nobody_has_seen_is_not_said_not_to_have_run() {
        let unknown = run_end(&CommandResult::ExitUnknown);
        let not_run = run_end(&CommandResult::NotStarted("user 'x' does not exist".to_owned()));

        assert_eq!(unknown, "ended; how is not known");
        assert_eq!(not_run, "did not run: user 'x' does not exist");
    }

    #[test]
    fn refusals_are_told_at_once_and_then_counted_for_a_while() {
        let at = |secs| Time::since_boot(Duration::from_secs(secs));
        let mut refusals = Refusals::default();

        let told = [1, 2, 3, 600, 601, 602].map(|secs| refusals.due(at(secs)));

        assert_eq!(told, [Some(1), None, None, None, Some(4), None]);
    }
}

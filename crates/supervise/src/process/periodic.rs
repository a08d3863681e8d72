//! Runs by schedule. When a run is due is decided outside (`crate::schedule`); here it is carried
//! out: the start command is the run, and a pid file may tell of a process that outlives it.

use std::time::Duration;

use proctor_model::{CommandEnd, CommandResult, Exit, Lifetime};

use super::work::Work;
use super::{Action, CommandKind, Notice, Process};
use crate::Time;

/// A run in the foreground may take this long; runs that come due meanwhile are skipped.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);

impl Process {
    pub(super) fn due(&mut self, now: Time, planned: i64, since_boot: Option<Time>) {
        self.record.planned_at = Some(planned);
        self.record.planned = since_boot;
        self.dirty = true;
        let is_periodic = self.record.spec.policy.lifetime == Lifetime::Periodic;
        if !is_periodic || !self.record.managed || self.is_busy() {
            return;
        }
        self.scheduled = true;
        self.launch_for(now, CommandKind::Start, None, RUN_MAX);
    }

    /// The command of a run has ended; what it left behind is adopted by the look that follows.
    pub(super) fn run_ended(&mut self, end: &CommandEnd) {
        self.scheduled = false;
        let exit = match end.result {
            CommandResult::Exited(exit) => Some(exit),
            CommandResult::TimedOut | CommandResult::Cancelled => Some(Exit::Signal(9)),
            CommandResult::Lost | CommandResult::NotRun(_) | CommandResult::Postponed => None,
        };
        if let CommandResult::NotRun(reason) = &end.result {
            self.reason = reason.clone();
        }
        self.record.launch = None;
        self.dirty = true;
        self.actions.push_back(Action::Announce(Notice::RunEnded { exit }));
        self.look();
        debug_assert!(matches!(self.work, Work::Look));
    }
}

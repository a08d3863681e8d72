//! What one caller may leave in the store without permission to change anything.
//!
//! Promised: targets that reach nothing (on unknown hosts, of unregistered processes) become rows of tasks only up to
//! some bytes per caller and hour, and so do those of status queries, whatever they reach; forbidden targets become
//! rows only beside others, as many as these and few more in an hour; plans, which need no permission to change anything, are limited in targets; the audit log lists a part of what was
//! refused or changed nothing (`audit_budget`), and names all targets of changes only up to some bytes; beyond that,
//! the first of each call and their number. A caller is an app, or a user who comes without one: an app cannot get
//! more by naming users, and one of these users leaves some of it to the others (`shares`).
//! Absent: memory across a restart, where everybody starts afresh; operations on registered processes, which the rate
//! limit bounds.

use std::time::{Duration, Instant};

use proctor_model::{Message, ProcessKey};

use super::audit_budget::AuditBudget;
use super::{Caller, ControlError, Result};
use crate::shares::{Allowance, Buckets, Shortage, account_of};

pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// What such targets of one caller may take in an hour. A client that asks for 100,000 hosts while their agents are
/// still being installed stays below.
pub const STRANGER_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// What forbidden targets of one caller may take in an hour, beyond as many as its calls reach: some 2,000 rows. A
/// client that may do something of what it asks for needs few, and one that may do nothing gets no task.
const REFUSED_BYTES_MAX: u32 = 1024 * 1024;
/// Targets of one caller's plans in an hour: a fleet of 10,000 hosts every minute (of one user of an app, of 7,500).
pub const PLANNED_MAX: u32 = 600_000;
/// Of a target and of an item, besides their texts.
const ROW_BYTES: usize = 160;
/// What the status queries of one caller may take in an hour: those of a fleet of 8,000 hosts every minute do (of one
/// user of an app, of 6,000 hosts).
pub const STATUS_BYTES_MAX: u32 = 256 * 1024 * 1024;
/// Names of targets in the audit entries of one caller's changes in an hour. It is kept for a year; an operation on a
/// thousand hosts takes some 50 kB.
const AUDIT_NAME_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// Of a task, besides its items and targets.
const TASK_BYTES: usize = 1000;
/// Of a target with what its agent says.
const STATUS_ROW_BYTES: usize = 400;

/// What callers have left of their hour, and what the audit does not list.
#[derive(Debug)]
pub(super) struct Budgets {
    strangers: HourlyBudget,
    refused: HourlyBudget,
    planned: HourlyBudget,
    status: HourlyBudget,
    audit_names: HourlyBudget,
    pub(super) refusals: AuditBudget,
    pub(super) unchanged: AuditBudget,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            strangers: HourlyBudget::new(STRANGER_BYTES_MAX),
            refused: HourlyBudget::new(REFUSED_BYTES_MAX),
            planned: HourlyBudget::new(PLANNED_MAX),
            status: HourlyBudget::new(STATUS_BYTES_MAX),
            audit_names: HourlyBudget::new(AUDIT_NAME_BYTES_MAX),
            refusals: AuditBudget::of_refusals(),
            unchanged: AuditBudget::of_unchanged(),
        }
    }
}

/// Targets that reach nothing, and what their rows take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnreachedTargets {
    pub(super) targets: usize,
    pub(super) bytes: usize,
}

impl UnreachedTargets {
    /// A target with its row, and the message of its outcome. The name of a row is in the task and in its outcome.
    pub(super) fn add_target(&mut self, row_key: &str, message: Option<&Message>) {
        self.targets += 1;
        self.bytes += ROW_BYTES + 3 * row_key.len() + message.map_or(0, Message::bytes);
    }

    /// An item of its own. Its process is in the task and in the index of tasks by process.
    pub(super) fn add_item(&mut self, key: &ProcessKey) {
        self.bytes += ROW_BYTES + 4 * (key.namespace.as_str().len() + key.name.as_str().len());
    }

    /// Those beyond so many others of their call, and their part of the bytes, with the task itself.
    fn beyond(self, others: usize) -> (usize, usize) {
        match self.targets.saturating_sub(others) {
            0 => (0, 0),
            targets => (targets, self.bytes / self.targets * targets + TASK_BYTES),
        }
    }
}

/// So much for each caller in an hour.
#[derive(Debug)]
struct HourlyBudget {
    limit: f64,
    buckets: Buckets,
}

impl Caller {
    /// An app may call for many users: each of them has an account.
    pub(crate) fn account(&self) -> String {
        account_of(&self.app, &self.user)
    }
}

impl Budgets {
    /// Takes targets that reach nothing off the caller's account, but for as many as the call operates on others: those
    /// are not kept waiting, and leave as many rows in any case. Such a call may overdraw the account once; that of an
    /// administrator is never refused.
    pub(super) fn take_strangers(
        &self,
        caller: &Caller,
        strangers: UnreachedTargets,
        operations: usize,
        now: Instant,
    ) -> Result<()> {
        let (targets, bytes) = strangers.beyond(operations);
        if caller.is_admin() {
            return Ok(());
        }
        let credit = if operations > 0 { self.strangers.limit } else { 0.0 };
        let too_many = |wait| ControlError::TooManyStrangers { targets, wait };
        let taken = self.strangers.take_on_credit(caller, bytes, credit, now);
        taken.map_err(|shortage| refused(shortage, targets, too_many))
    }

    /// Takes forbidden targets off the caller's account, but for as many as the call reaches of the same kind. A call
    /// that reaches something may overdraw the account once. Whether their rows may be stored; those of an
    /// administrator always.
    pub(super) fn take_refused(
        &self,
        caller: &Caller,
        refused: UnreachedTargets,
        reached: usize,
        now: Instant,
    ) -> bool {
        let (_, bytes) = refused.beyond(reached);
        let credit = if reached > 0 { self.refused.limit } else { 0.0 };
        caller.is_admin() || self.refused.take_on_credit(caller, bytes, credit, now).is_ok()
    }

    /// Whether the audit may name targets in so many bytes; those of an administrator always.
    pub(super) fn may_name(&self, caller: &Caller, bytes: usize, now: Instant) -> bool {
        caller.is_admin() || self.audit_names.take(caller, bytes, now).is_ok()
    }

    /// Takes the targets of a plan off the caller's account, before anything is looked up for it.
    pub(super) fn take_planned(&self, caller: &Caller, targets: usize, now: Instant) -> Result<()> {
        if caller.is_admin() {
            return Ok(());
        }
        let too_many = |wait| ControlError::TooManyPlanned { targets, wait };
        self.planned.take(caller, targets, now).map_err(|shortage| refused(shortage, targets, too_many))
    }

    /// Takes the rows of status queries off the caller's account, but for as many as the call operates on others; one of
    /// an administrator is never refused.
    pub(super) fn take_status(
        &self,
        caller: &Caller,
        row_keys: &[&str],
        operations: usize,
        now: Instant,
    ) -> Result<()> {
        let row_keys = row_keys.get(operations..).unwrap_or_default();
        let targets = row_keys.len();
        if targets == 0 || caller.is_admin() {
            return Ok(());
        }
        let bytes = row_keys.iter().map(|key| STATUS_ROW_BYTES + 3 * key.len()).sum::<usize>() + TASK_BYTES;
        let too_many = |wait| ControlError::TooManyStatus { targets, wait };
        self.status.take(caller, bytes, now).map_err(|shortage| refused(shortage, targets, too_many))
    }
}

/// A call that can be repeated later, or one that never fits.
fn refused(shortage: Shortage, targets: usize, later: impl FnOnce(Duration) -> ControlError) -> ControlError {
    match shortage {
        Shortage::For(wait) => later(wait),
        Shortage::ForEver => ControlError::TooLarge { targets },
    }
}

impl HourlyBudget {
    fn new(limit: u32) -> Self {
        Self { limit: f64::from(limit), buckets: Buckets::default() }
    }

    /// Takes as much as is wanted, or nothing: then it says how long to wait for it, if that helps.
    fn take(&self, caller: &Caller, wanted: usize, now: Instant) -> std::result::Result<(), Shortage> {
        self.take_on_credit(caller, wanted, 0.0, now)
    }

    /// As [`Self::take`], with so much more than there is.
    fn take_on_credit(
        &self,
        caller: &Caller,
        wanted: usize,
        credit: f64,
        now: Instant,
    ) -> std::result::Result<(), Shortage> {
        if wanted == 0 {
            return Ok(());
        }
        let limit = Allowance { at_once: self.limit, per_second: self.limit / HOUR.as_secs_f64() };
        self.buckets.take_on_credit(&caller.account(), wanted as f64, credit, limit, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::part_of_user;

    /// One that is no administrator.
    fn caller(app: &str) -> Caller {
        Caller { permissions: std::sync::Arc::new(proctor_model::Permissions::default()), ..Caller::local(app) }
    }

    fn tenths(count: usize) -> UnreachedTargets {
        // A little less: the task counts, too.
        UnreachedTargets { targets: count, bytes: count * (STRANGER_BYTES_MAX as usize / 10 - TASK_BYTES) }
    }

    #[test]
    fn the_names_of_targets_in_the_audit_are_bounded_by_the_hour_and_the_app_but_for_administrators() {
        let (budgets, now, tenth) = (Budgets::default(), Instant::now(), AUDIT_NAME_BYTES_MAX as usize / 10);
        let named = |caller: &Caller, at| (0..20).filter(|_| budgets.may_name(caller, tenth, at)).count();

        assert_eq!((named(&caller("job"), now), named(&caller("other"), now)), (10, 10));
        assert_eq!(named(&Caller::local("job"), now), 20);
        assert_eq!(named(&caller("job"), now + HOUR / 2), 5);
    }

    #[test]
    fn targets_that_reach_nothing_are_bounded_by_the_hour_and_the_app() {
        let (budgets, now) = (Budgets::default(), Instant::now());
        let [ana, bob] = ["ana", "bob"].map(|user| Caller { user: user.to_owned(), ..caller("job") });

        let is_soon = |wait: Duration| wait.abs_diff(HOUR / 10) < Duration::from_secs(1);

        assert!(budgets.take_strangers(&ana, tenths(6), 0, now).is_ok());
        let refused = budgets.take_strangers(&bob, tenths(5), 0, now);
        assert!(matches!(refused, Err(ControlError::TooManyStrangers { wait, .. }) if is_soon(wait)), "{refused:?}");
        assert!(budgets.take_strangers(&caller("other"), tenths(5), 0, now).is_ok());
        assert!(budgets.take_strangers(&bob, tenths(4), 0, now).is_ok());
        assert!(budgets.take_strangers(&bob, tenths(1), 0, now).is_err());
        assert!(budgets.take_strangers(&bob, tenths(5), 0, now + HOUR / 2).is_ok());
        let never = |caller, count| {
            let refused = budgets.take_strangers(caller, tenths(count), 0, now + 9 * HOUR);
            matches!(refused, Err(ControlError::TooLarge { targets }) if targets == count)
        };
        assert!(never(&bob, 8), "one user leaves some to others");
        assert!(never(&caller("job"), 11), "more than there is in an hour");
    }

    #[test]
    fn forbidden_targets_are_stored_beside_as_many_others_and_a_few_more_in_an_hour() {
        let (budgets, now, job) = (Budgets::default(), Instant::now(), caller("job"));
        let mut refused = UnreachedTargets::default();
        refused.add_item(&"web/m".parse().unwrap());
        for number in 0..100 {
            refused.add_target(&format!("0:10.0.0.{number}:web:m"), Some(&Message::foreign("may not operate on it")));
        }
        let take = |reached, at| budgets.take_refused(&job, refused, reached, at);

        let stored = (0..1000).take_while(|_| take(0, now)).count();

        assert!((20..50).contains(&stored), "{stored}");
        assert!((0..1000).all(|_| take(100, now)), "as many as the call reaches");
        assert!(take(1, now), "what it reaches is not kept waiting");
        let on_credit = (0..1000).take_while(|_| take(1, now)).count();
        assert!((20..50).contains(&on_credit), "the others count: {on_credit}");
        assert!(budgets.take_refused(&Caller::local("job"), refused, 0, now), "an administrator");
        assert!(!take(0, now + HOUR / 2) && take(0, now + 2 * HOUR), "and that is paid back");
    }

    #[test]
    fn a_call_that_operates_on_others_besides_overdraws_the_account_once() {
        let (budgets, now, job) = (Budgets::default(), Instant::now(), caller("job"));
        let take = |count, operations, at| budgets.take_strangers(&job, tenths(count), operations, at);
        let is_soon = |wait: Duration| wait.abs_diff(HOUR / 10) < Duration::from_secs(1);

        assert!(take(10, 0, now).is_ok() && take(1, 0, now).is_err());
        assert!(take(11, 1, now).is_ok(), "the others of the call are not kept waiting");
        let refused = take(2, 1, now);
        assert!(matches!(refused, Err(ControlError::TooManyStrangers { wait, .. }) if is_soon(wait)), "{refused:?}");
        assert!(take(1, 0, now + HOUR).is_err(), "and that is paid back");
        assert!(take(3, 3, now).is_ok(), "a few that are not known keep nothing from being stopped");
        let take = |count, operations, at| take(count, operations, at).is_ok();
        assert!(take(5, 0, now + 2 * HOUR));
        assert!(budgets.take_strangers(&Caller::local("job"), tenths(50), 0, now).is_ok(), "an administrator");
    }

    #[test]
    fn long_names_cost_what_they_take() {
        let long: ProcessKey = format!("web/{}", "n".repeat(128)).parse().unwrap();
        let charge = |key: &ProcessKey| {
            let mut strangers = UnreachedTargets::default();
            strangers.add_item(key);
            strangers.add_target(
                &format!("10.0.0.1:0:0:{key}"),
                Some(&Message::foreign("process is not registered on host 0:10.0.0.1")),
            );
            strangers.bytes
        };

        assert!(charge(&long) > 1_200, "{}", charge(&long));
        let of_user = part_of_user(STRANGER_BYTES_MAX.into());
        assert!(charge(&"web/a".parse().unwrap()) as u64 * 100_000 < of_user);
    }

    #[test]
    fn plans_are_bounded_by_the_hour() {
        let (budgets, now, job) = (Budgets::default(), Instant::now(), caller("job"));

        for _ in 0..60 {
            assert!(budgets.take_planned(&job, 10_000, now).is_ok());
        }
        let refused = budgets.take_planned(&job, 10_000, now);
        assert!(matches!(refused, Err(ControlError::TooManyPlanned { .. })), "{refused:?}");
        assert!(budgets.take_planned(&job, 10_000, now + HOUR / 50).is_ok());
        assert!(budgets.take_planned(&Caller::local("job"), 10_000, now).is_ok(), "an administrator");
        let [ana, bob] = ["ana", "bob"].map(|user| Caller { user: user.to_owned(), ..caller("other") });
        let plans = |caller: &Caller| (0..90).take_while(|_| budgets.take_planned(caller, 10_000, now).is_ok()).count();
        assert_eq!((plans(&ana), plans(&bob)), (45, 15), "one user leaves some to others");
    }

    #[test]
    fn status_queries_are_bounded_by_the_hour_and_the_app_for_all_but_administrators() {
        let (budgets, now) = (Budgets::default(), Instant::now());
        let (job, bob) = (caller("job"), Caller { user: "bob".to_owned(), ..caller("job") });
        let fleet = vec!["0:10.128.200.101:monitoring:bkmonitorbeat"; 8_000];
        let take = |caller: &Caller, at| budgets.take_status(caller, &fleet, 0, at);

        let minutes = (0..120).take_while(|_| take(&job, now).is_ok()).count();
        let refused = take(&bob, now);

        assert!((60..70).contains(&minutes), "{minutes}");
        assert!(matches!(refused, Err(ControlError::TooManyStatus { targets: 8_000, .. })), "{refused:?}");
        assert!(take(&caller("other"), now).is_ok() && take(&Caller::local("job"), now).is_ok());
        assert!(take(&bob, now + HOUR / 50).is_ok());
        assert!(budgets.take_status(&bob, &["a", "b"], 2, now).is_ok(), "stops that come with queries are not refused");
        let small = caller("small");
        let single = (0..1_000_000).take_while(|_| budgets.take_status(&small, &["0:10.0.0.1"], 0, now).is_ok());
        assert!((150_000..250_000).contains(&single.count()), "a query costs something whatever it asks for");
    }
}

//! What one caller may leave in the store without a right to change anything.
//!
//! Promised: targets that reach nothing (status queries of hosts that are not known and of processes that are not
//! registered, and whatever is forbidden) are rows of tasks only up to a number for each caller and hour; the audit lists the first refusals of a
//! caller in an hour one by one and the others as a count. A caller is an app, or a user who comes without one: an app
//! cannot get more by naming users. Absent: memory across a restart, where everybody begins anew; targets that are
//! registered, which the rate of calls bounds.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::Subject;
use proctor_store::{AuditDraft, AuditPhase};

use super::{Caller, ControlError, Result};

const HOUR: Duration = Duration::from_secs(3600);
/// Such targets of one caller in an hour, at about 200 bytes each. A client that asks for the status of a fleet
/// while its agents are still being installed stays below.
pub const STRANGERS_MAX: u32 = 100_000;
/// Refusals of one caller in an hour that are listed one by one.
const LISTED_MAX: u32 = 200;
/// Different actions that the entry of the others names.
const ACTIONS_MAX: usize = 20;

/// What callers have left of their hour, and what the audit does not list.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    strangers: Mutex<HashMap<Subject, Bucket>>,
    refusals: Mutex<HashMap<Subject, Refusals>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Of one caller, since the hour began.
#[derive(Debug)]
struct Refusals {
    since: Instant,
    listed: u32,
    /// The last one that was only counted, and how many there were of each action.
    unlisted: Option<(AuditDraft, BTreeMap<String, u64>)>,
}

impl Caller {
    fn payer(&self) -> Subject {
        match self.app.as_str() {
            "" => Subject::User(self.user.clone()),
            app => Subject::App(app.to_owned()),
        }
    }
}

impl Budgets {
    /// Takes so many targets that reach nothing off the caller's account.
    pub(super) fn take_strangers(&self, caller: &Caller, targets: usize, now: Instant) -> Result<()> {
        let (limit, wanted) = (f64::from(STRANGERS_MAX), targets as f64);
        if targets == 0 {
            return Ok(());
        }
        let mut buckets = self.strangers.lock();
        let gained = |bucket: &Bucket| {
            let secs = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + secs * limit / HOUR.as_secs_f64()).min(limit)
        };
        buckets.retain(|_, bucket| gained(bucket) < limit);
        let left = buckets.get(&caller.payer()).map_or(limit, gained);
        if wanted > left {
            let wait = HOUR.mul_f64((wanted.min(limit) - left) / limit);
            return Err(ControlError::TooManyStrangers { targets, wait });
        }
        buckets.insert(caller.payer(), Bucket { left: left - wanted, at: now });
        Ok(())
    }

    /// The entries that the audit gets for a refusal: none, where the caller had many in this hour.
    pub(super) fn refused(&self, caller: &Caller, mut entry: AuditDraft, now: Instant) -> Vec<AuditDraft> {
        let mut all = self.refusals.lock();
        let begun = || Refusals { since: now, listed: 0, unlisted: None };
        let refusals = all.entry(caller.payer()).or_insert_with(begun);
        let mut entries = Vec::new();
        if now.saturating_duration_since(refusals.since) >= HOUR {
            entries.extend(std::mem::replace(refusals, begun()).counted());
        }
        if refusals.listed >= LISTED_MAX {
            let (last, actions) = refusals.unlisted.get_or_insert_with(|| (entry.clone(), BTreeMap::new()));
            let action = if actions.len() < ACTIONS_MAX || actions.contains_key(&entry.action) {
                entry.action.clone()
            } else {
                "others".to_owned()
            };
            *actions.entry(action).or_default() += 1;
            *last = entry;
            return entries;
        }
        refusals.listed += 1;
        if refusals.listed == LISTED_MAX {
            entry.outcome += "; more refusals of this caller are only counted for an hour";
        }
        entries.push(entry);
        entries
    }

    /// What is to be told of hours that are over.
    pub(super) fn ended_refusals(&self, now: Instant) -> Vec<AuditDraft> {
        let mut entries = Vec::new();
        self.refusals.lock().retain(|_, refusals| {
            let is_over = now.saturating_duration_since(refusals.since) >= HOUR;
            if is_over {
                entries.extend(refusals.counted());
            }
            !is_over
        });
        entries
    }
}

impl Refusals {
    fn counted(&mut self) -> Option<AuditDraft> {
        let (last, actions) = self.unlisted.take()?;
        let count: u64 = actions.values().sum();
        Some(AuditDraft {
            phase: AuditPhase::Refused,
            action: "refusals".to_owned(),
            target_count: count,
            targets: actions.iter().map(|(action, count)| format!("{action} × {count}")).collect(),
            outcome: format!("{count} more calls within an hour, the last one: {}", last.outcome),
            ..last
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::audit::AuditAction;

    fn entry(caller: &Caller, action: &'static str) -> AuditDraft {
        caller.entry(&AuditAction::new(action, []).on(["x"]), AuditPhase::Refused, "may not".to_owned())
    }

    #[test]
    fn targets_that_reach_nothing_are_bounded_by_the_hour_and_the_app() {
        let (budgets, now) = (Budgets::default(), Instant::now());
        let (ana, bob) = (Caller::local("job"), Caller { user: "bob".to_owned(), ..Caller::local("job") });

        assert!(budgets.take_strangers(&ana, 60_000, now).is_ok());
        let refused = budgets.take_strangers(&bob, 50_000, now);
        assert!(
            matches!(refused, Err(ControlError::TooManyStrangers { wait, .. }) if wait == HOUR / 10),
            "{refused:?}"
        );
        assert!(budgets.take_strangers(&Caller::local("other"), 50_000, now).is_ok());
        assert!(budgets.take_strangers(&bob, 40_000, now).is_ok());
        assert!(budgets.take_strangers(&bob, 1, now).is_err());
        assert!(budgets.take_strangers(&bob, 50_000, now + HOUR / 2).is_ok());
        assert!(budgets.take_strangers(&bob, 100_001, now + 9 * HOUR).is_err(), "more than there is in an hour");
    }

    #[test]
    fn refusals_beyond_the_first_are_one_entry_with_their_count() {
        let (budgets, now, job) = (Budgets::default(), Instant::now(), Caller::local("job"));

        let listed: Vec<_> = (0..250).flat_map(|_| budgets.refused(&job, entry(&job, "stop"), now)).collect();
        let others = budgets.refused(&Caller::local("other"), entry(&job, "stop"), now);
        budgets.refused(&job, entry(&job, "start"), now);
        let early = budgets.ended_refusals(now + HOUR / 2);
        let ended = budgets.ended_refusals(now + HOUR);
        let again = budgets.refused(&job, entry(&job, "stop"), now + HOUR);

        assert_eq!((listed.len(), others.len(), early.len()), (200, 1, 0));
        assert!(listed[199].outcome.ends_with("are only counted for an hour"), "{}", listed[199].outcome);
        assert_eq!((ended.len(), ended[0].target_count), (1, 51));
        assert_eq!(ended[0].targets, ["start × 1", "stop × 50"]);
        assert_eq!((ended[0].app.as_str(), again.len()), ("job", 1));
    }
}

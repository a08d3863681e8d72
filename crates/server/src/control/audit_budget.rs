//! How many refusals, and calls that changed nothing, the audit log lists.
//!
//! Promised: for one caller (who pays, `shares`), the first [`LISTED_MAX`] such calls of an hour get their own
//! entries, and so do the first [`OF_ACTION_MIN`] of each action, however many others came before: nobody can hide
//! attempts behind refusals that cost nothing. The others become one entry at the end of the hour, with a count per
//! action. Refusals and allowed calls that changed nothing are counted separately, so that neither hides the other;
//! nor does one user of an app take all of its entries. On shutdown the server writes the counts of unfinished hours.
//! Absent: memory across a restart, and counts of a server that was killed.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use parking_lot::Mutex;
use proctor_store::{AuditDraft, AuditPhase};

use super::Caller;
use super::budget::HOUR;
use crate::shares::{Held, Shares, payer_of};

/// Calls of one caller per hour that are listed individually.
const LISTED_MAX: u64 = 200;
/// Of one action in any case.
const OF_ACTION_MIN: u32 = 5;
/// Actions for which that holds, and that the entry of the others names.
const ACTIONS_MAX: usize = 256;
const OTHER_ACTIONS: &str = "others";

/// Of one kind of call.
#[derive(Debug)]
pub(super) struct AuditBudget {
    kind: Kind,
    by_payer: Mutex<HashMap<String, Listed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Refusals,
    Unchanged,
}

/// Of one caller, since the hour began.
#[derive(Debug)]
struct Listed {
    since: Instant,
    listed: Held,
    by_action: BTreeMap<String, u32>,
    unlisted: Option<Unlisted>,
}

/// Calls that were only counted.
#[derive(Debug)]
struct Unlisted {
    last: AuditDraft,
    by_action: BTreeMap<String, u64>,
    /// Of several users, or from several addresses: then the entry names none.
    is_of_several: bool,
}

impl AuditBudget {
    /// For calls that were refused.
    pub(super) fn of_refusals() -> Self {
        Self { kind: Kind::Refusals, by_payer: Mutex::default() }
    }

    /// For calls that were allowed and changed nothing.
    pub(super) fn of_unchanged() -> Self {
        Self { kind: Kind::Unchanged, by_payer: Mutex::default() }
    }

    /// The entries that the audit gets for a call: the count of an hour that is over, and the entry itself unless the
    /// caller had many in this hour.
    pub(super) fn admit(
        &self,
        caller: &Caller,
        mut entry: AuditDraft,
        now: Instant,
    ) -> (Option<AuditDraft>, Option<AuditDraft>) {
        let account = caller.account();
        let mut all = self.by_payer.lock();
        let listed = all.entry(payer_of(&account).to_owned()).or_insert_with(|| Listed::begun(now));
        let mut ended = None;
        if listed.is_over(now) {
            ended = std::mem::replace(listed, Listed::begun(now)).counted(self.kind);
        }
        if !listed.takes(&account, &entry.action) {
            listed.count(entry);
            return (ended, None);
        }
        if listed.is_full(&account) {
            entry.outcome += self.kind.last_words();
        }
        (ended, Some(entry))
    }

    /// What is to be reported about finished hours.
    pub(super) fn ended(&self, now: Instant) -> Vec<AuditDraft> {
        self.take(|listed| listed.is_over(now))
    }

    /// What is to be reported about all hours, because the server shuts down.
    pub(super) fn drained(&self) -> Vec<AuditDraft> {
        self.take(|_| true)
    }

    fn take(&self, is_over: impl Fn(&Listed) -> bool) -> Vec<AuditDraft> {
        let mut entries = Vec::new();
        self.by_payer.lock().retain(|_, listed| {
            let is_over = is_over(listed);
            if is_over {
                entries.extend(listed.counted(self.kind));
            }
            !is_over
        });
        entries
    }
}

impl Kind {
    fn last_words(self) -> &'static str {
        match self {
            Self::Refusals => "; more refusals of this caller are only counted for an hour",
            Self::Unchanged => "; more calls of this caller that change nothing are only counted for an hour",
        }
    }

    /// Of the entry that has the count: its phase and action.
    fn summary(self) -> (AuditPhase, &'static str) {
        match self {
            Self::Refusals => (AuditPhase::Refused, "refusals"),
            Self::Unchanged => (AuditPhase::Done, "no_change"),
        }
    }
}

impl Listed {
    fn begun(now: Instant) -> Self {
        Self { since: now, listed: Held::default(), by_action: BTreeMap::new(), unlisted: None }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= HOUR
    }

    fn is_full(&self, account: &str) -> bool {
        self.listed.full(account, 1, Shares::new(LISTED_MAX, LISTED_MAX)).is_some()
    }

    /// Whether one more of this action is listed; it is counted then.
    fn takes(&mut self, account: &str, action: &str) -> bool {
        let is_known = self.by_action.contains_key(action) || self.by_action.len() < ACTIONS_MAX;
        let of_action = self.by_action.get(action).copied().unwrap_or(0);
        if self.is_full(account) && !(is_known && of_action < OF_ACTION_MIN) {
            return false;
        }
        self.listed.add(account, 1);
        if is_known {
            self.by_action.insert(action.to_owned(), of_action + 1);
        }
        true
    }

    fn count(&mut self, entry: AuditDraft) {
        let begun = || Unlisted { last: entry.clone(), by_action: BTreeMap::new(), is_of_several: false };
        let Unlisted { last, by_action, is_of_several } = self.unlisted.get_or_insert_with(begun);
        let is_named = by_action.len() < ACTIONS_MAX || by_action.contains_key(&entry.action);
        let action = if is_named { entry.action.clone() } else { OTHER_ACTIONS.to_owned() };
        *by_action.entry(action).or_default() += 1;
        *is_of_several |= (&last.user, last.remote) != (&entry.user, entry.remote);
        *last = entry;
    }

    fn counted(&mut self, kind: Kind) -> Option<AuditDraft> {
        let Unlisted { mut last, by_action, is_of_several } = self.unlisted.take()?;
        if is_of_several {
            (last.user, last.remote, last.request_id) = (String::new(), None, String::new());
        }
        let count: u64 = by_action.values().sum();
        let (phase, action) = kind.summary();
        Some(AuditDraft {
            phase,
            action: action.to_owned(),
            target_count: count,
            targets: by_action.iter().map(|(action, count)| format!("{action} × {count}")).collect(),
            outcome: format!("{count} more were not recorded in this hour, the last one: {}", last.outcome),
            ..last
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::audit::AuditAction;

    fn entry(caller: &Caller, action: impl Into<std::borrow::Cow<'static, str>>) -> AuditDraft {
        caller.entry(&AuditAction::new(action, []).on(["x"]), AuditPhase::Refused, "may not".to_owned())
    }

    /// The own entries of so many calls.
    fn listed(
        budget: &AuditBudget,
        caller: &Caller,
        action: &'static str,
        calls: u32,
        now: Instant,
    ) -> Vec<AuditDraft> {
        (0..calls).filter_map(|_| budget.admit(caller, entry(caller, action), now).1).collect()
    }

    #[test]
    fn refusals_beyond_the_first_are_one_entry_with_their_count() {
        let (budget, now, job) = (AuditBudget::of_refusals(), Instant::now(), Caller::local("job"));

        let own = listed(&budget, &job, "stop", 250, now);
        let others = listed(&budget, &Caller::local("other"), "stop", 1, now);
        let early = budget.ended(now + HOUR / 2);
        let ended = budget.ended(now + HOUR);
        let again = listed(&budget, &job, "stop", 1, now + HOUR);

        assert_eq!((own.len(), others.len(), early.len(), again.len()), (200, 1, 0, 1));
        assert!(own[199].outcome.ends_with("are only counted for an hour"), "{}", own[199].outcome);
        assert_eq!((ended.len(), ended[0].target_count, ended[0].app.as_str()), (1, 50, "job"));
        assert_eq!((ended[0].action.as_str(), ended[0].phase), ("refusals", AuditPhase::Refused));
        assert_eq!(ended[0].targets, ["stop × 50"]);
        assert_eq!(ended[0].outcome, "50 more were not recorded in this hour, the last one: may not");
    }

    #[test]
    fn the_first_of_each_action_are_listed_however_many_others_came_before() {
        let (budget, now, job) = (AuditBudget::of_refusals(), Instant::now(), Caller::local("job"));
        listed(&budget, &job, "status", 1000, now);

        let own = listed(&budget, &job, "create_user", 10, now);
        let ended = budget.ended(now + HOUR);

        assert_eq!(own.len(), OF_ACTION_MIN as usize);
        assert_eq!(ended[0].targets, ["create_user × 5", "status × 800"]);
    }

    #[test]
    fn what_several_users_of_an_app_tried_is_told_of_none_of_them() {
        let (budget, now) = (AuditBudget::of_refusals(), Instant::now());
        let [ana, bob] = ["ana", "bob"].map(|user| Caller { user: user.to_owned(), ..Caller::local("job") });
        let of_ana = listed(&budget, &ana, "stop", 300, now);
        let of_bob = listed(&budget, &bob, "stop", 60, now);

        let ended = budget.ended(now + HOUR);

        assert_eq!((of_ana.len(), of_bob.len()), (150, 50), "what one user tries leaves entries to the others");
        assert_eq!((ended[0].app.as_str(), ended[0].user.as_str(), ended[0].target_count), ("job", "", 160));
    }

    #[test]
    fn there_are_fewer_actions_than_the_audit_remembers_of_a_caller() {
        let native = include_str!("../../../../docs/openapi.json").matches("\"operationId\"").count();
        // Those of the compatible APIs, and the operations.
        let others = 60;
        assert!(native > 50 && native + others < ACTIONS_MAX, "{native}");
    }

    #[test]
    fn whatever_a_caller_tries_its_entries_are_bounded() {
        let (budget, now, job) = (AuditBudget::of_refusals(), Instant::now(), Caller::local("job"));
        let names = (0..100_000).map(|number| format!("action-{}", number % 10_000));

        let own = names.filter_map(|name| budget.admit(&job, entry(&job, name), now).1).count();
        let ended = budget.ended(now + HOUR);

        assert!(own <= LISTED_MAX as usize + ACTIONS_MAX * OF_ACTION_MIN as usize, "{own}");
        assert_eq!((ended.len(), ended[0].targets.len()), (1, ACTIONS_MAX + 1), "{:?}", ended[0].targets);
    }

    #[test]
    fn an_hour_that_is_over_is_told_with_the_next_call() {
        let (budget, now, job) = (AuditBudget::of_unchanged(), Instant::now(), Caller::local("job"));
        listed(&budget, &job, "register", 201, now);

        let (ended, own) = budget.admit(&job, entry(&job, "register"), now + HOUR);

        let ended = ended.expect("one was not listed");
        assert_eq!((ended.action.as_str(), ended.phase, ended.target_count), ("no_change", AuditPhase::Done, 1));
        assert!(own.is_some() && budget.ended(now + HOUR).is_empty());
    }
}

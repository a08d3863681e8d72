//! Who changed what: every mutation leaves an entry in the store before it is answered.
//!
//! Promised: an entry "begun" is durable before the change is made and "ended" follows with the result, even if the
//! caller has disconnected meanwhile; a task's entry is written in the same transaction that creates the task;
//! refusals for lack of permission are kept too, beyond some number as a count (see `audit_budget`). No secret gets
//! into an entry.
//! Absent: reads.

use std::borrow::Cow;
use std::time::Instant;

use proctor_model::{Class, Classes, Outcome};
use proctor_runtime::clock;
use proctor_store::{AuditDraft, AuditPhase, Store};

use super::{Caller, Control, Result};

/// So many targets are named in an entry; their number is always whole.
pub(super) const TARGETS_NAMED_MAX: usize = 1000;

/// With no more text than this, and the last of them.
const TARGETS_BYTES_MAX: usize = 128 * 1024;

/// Refusals and calls that changed nothing name no more than this: a caller without permissions must not fill the
/// store by asking. The same goes for the end of a change, whose beginning names them, and beyond what one caller's
/// changes may name in an hour.
const FEW_TARGETS: usize = 20;

/// What is done to what, in the terms of the audit log.
#[derive(Clone, Debug)]
pub struct AuditAction {
    pub action: Cow<'static, str>,
    pub classes: Classes,
    /// The first of them.
    targets: Vec<String>,
    target_bytes: usize,
    target_count: usize,
    /// What holds for all targets, until the first is named.
    about: Option<String>,
}

impl AuditAction {
    pub fn new(action: impl Into<Cow<'static, str>>, classes: impl IntoIterator<Item = Class>) -> Self {
        Self {
            action: action.into(),
            classes: classes.into_iter().collect(),
            targets: Vec::new(),
            target_bytes: 0,
            target_count: 0,
            about: None,
        }
    }

    /// What is done to all targets alike; the first of them says it.
    #[must_use]
    pub(super) fn about(mut self, about: String) -> Self {
        self.about = Some(about);
        self
    }

    #[must_use]
    pub fn on(mut self, targets: impl IntoIterator<Item = impl ToString, IntoIter: ExactSizeIterator>) -> Self {
        let targets = targets.into_iter();
        self.target_count += targets.len();
        for target in targets {
            if self.targets.len() >= TARGETS_NAMED_MAX || self.target_bytes >= TARGETS_BYTES_MAX {
                break;
            }
            let mut target = target.to_string();
            if let Some(about) = self.about.take() {
                target = format!("{target}: {about}");
            }
            self.target_bytes += target.len();
            self.targets.push(target);
        }
        self
    }

    /// Names only the first targets. Their number stays.
    fn shorten(&mut self) {
        self.targets.truncate(FEW_TARGETS);
        self.target_bytes = self.targets.iter().map(String::len).sum();
    }

    /// Those that are named are some of so many.
    #[must_use]
    pub(super) fn among(mut self, target_count: usize) -> Self {
        self.target_count = target_count;
        self
    }
}

impl Caller {
    pub(super) fn entry(&self, deed: &AuditAction, phase: AuditPhase, outcome: String) -> AuditDraft {
        AuditDraft {
            phase,
            of: None,
            app: self.app.clone(),
            user: self.user.clone(),
            remote: self.origin.remote,
            request_id: self.origin.request_id.clone(),
            action: deed.action.to_string(),
            classes: deed.classes,
            target_count: deed.target_count as u64,
            targets: deed.targets.clone(),
            outcome,
        }
    }
}

impl Control {
    /// Makes a change with its audit entries; `told` gives the result in a few words. Runs to its end even if the
    /// caller disconnects.
    pub async fn audited<T, F, Fut>(
        &self,
        caller: &Caller,
        deed: AuditAction,
        work: F,
        told: impl FnOnce(&T) -> String + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let (caller, deed) = (caller.clone(), self.named_within_budget(caller, deed));
        self.run_to_completion("audited change", |control| async move {
            let work = work(control.clone());
            audited_on(control.inner.store.as_ref(), &caller, &deed, work, told).await
        })
        .await
    }

    /// A change that only administrators of everything may make.
    pub async fn administer<T, F, Fut>(
        &self,
        caller: &Caller,
        action: &'static str,
        targets: impl IntoIterator<Item = impl ToString, IntoIter: ExactSizeIterator>,
        work: F,
        told: impl FnOnce(&T) -> String + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let deed = AuditAction::new(action, [Class::Admin]).on(targets);
        self.audit_refusal(caller, &deed, caller.require(Class::Admin)).await?;
        let done = self.audited(caller, deed, work, told).await;
        self.access_changed();
        done
    }

    /// With all the targets that an entry can name, or the first of them where the caller's changes have named many.
    pub(super) fn named_within_budget(&self, caller: &Caller, mut deed: AuditAction) -> AuditAction {
        if deed.targets.len() > FEW_TARGETS && !self.inner.budgets.may_name(caller, deed.target_bytes, Instant::now()) {
            deed.shorten();
        }
        deed
    }

    /// Leaves a trace of a refusal.
    pub async fn audit_refusal(&self, caller: &Caller, deed: &AuditAction, check: Result<()>) -> Result<()> {
        let Some(refusal) = check.as_ref().err().filter(|error| error.is_refusal()) else { return check };
        let mut entry = caller.entry(deed, AuditPhase::Refused, refusal.to_string());
        entry.targets.truncate(FEW_TARGETS);
        let (ended, own) = self.inner.budgets.refusals.admit(caller, entry, Instant::now());
        self.write_refusals(ended.into_iter().chain(own)).await;
        check
    }

    /// Leaves a small trace of a call that may change something and did not.
    pub(super) async fn audit_no_change(&self, caller: &Caller, deed: &AuditAction, outcome: String) {
        let entry = self.entry_without_change(caller, deed, outcome).await;
        self.write_refusals(entry).await;
    }

    /// The small entry of a call that changed nothing, such as a status query that was refused on some of its targets.
    /// None where the caller had many such calls.
    pub(super) async fn entry_without_change(
        &self,
        caller: &Caller,
        deed: &AuditAction,
        outcome: String,
    ) -> Option<AuditDraft> {
        let mut entry = caller.entry(deed, AuditPhase::Done, outcome);
        entry.targets.truncate(FEW_TARGETS);
        let (ended, own) = self.inner.budgets.unchanged.admit(caller, entry, Instant::now());
        self.write_refusals(ended).await;
        own
    }

    /// Writes the counts of what the audit log does not list. For a server that accepts no more calls.
    pub async fn end_audit(&self) {
        for budget in [&self.inner.budgets.refusals, &self.inner.budgets.unchanged] {
            self.write_refusals(budget.drained()).await;
        }
    }

    pub(super) async fn write_refusals(&self, entries: impl IntoIterator<Item = AuditDraft, IntoIter: Send>) {
        for entry in entries {
            let action = entry.action.clone();
            if let Err(error) = self.inner.store.append_audit(entry, clock::unix_millis()).await {
                tracing::error!(%error, %action, "cannot audit refusal");
            }
        }
    }
}

/// Makes a change on the store with its audit entries; `told` gives the result in a few words.
pub(crate) async fn audited_on<T>(
    store: &dyn Store,
    caller: &Caller,
    deed: &AuditAction,
    work: impl Future<Output = Result<T>>,
    told: impl FnOnce(&T) -> String,
) -> Result<T> {
    let begun = store.append_audit(caller.entry(deed, AuditPhase::Begun, String::new()), clock::unix_millis()).await?;
    let done = work.await;
    let outcome = match &done {
        Ok(value) => told(value),
        Err(error) => format!("failed: {error}"),
    };
    let mut ended = AuditDraft { of: Some(begun), ..caller.entry(deed, AuditPhase::Ended, outcome) };
    ended.targets.truncate(FEW_TARGETS); // the entry of the beginning has them all
    if let Err(error) = store.append_audit(ended, clock::unix_millis()).await {
        // The change is made and its beginning is audited: the response must not deny it.
        tracing::error!(%error, action = %deed.action, begun, "cannot audit end of change");
    }
    done
}

/// Rows in a few words: how many went well, how many did not, by their codes.
pub(super) fn counted(outcomes: &[Outcome]) -> String {
    let mut by_code = std::collections::BTreeMap::<u32, usize>::new();
    for outcome in outcomes {
        *by_code.entry(outcome.code.number()).or_default() += 1;
    }
    let counts: Vec<String> = by_code.into_iter().map(|(code, count)| format!("{count} × {code}")).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_the_first_of_many_targets_and_says_once_what_holds_for_all() {
        let few = AuditAction::new("register", []).about("spec x".to_owned()).on(["a", "b"]);
        let many = AuditAction::new("register", []).on(vec!["t"; 5000]);
        let long = AuditAction::new("register", []).on(vec!["t".repeat(1000); 900]);
        let some = AuditAction::new("register", []).on(["a"]).among(7);

        assert_eq!(few.targets, ["a: spec x", "b"]);
        assert_eq!((many.targets.len(), many.target_count), (TARGETS_NAMED_MAX, 5000));
        assert_eq!((long.targets.len(), long.target_count), (TARGETS_BYTES_MAX.div_ceil(1000), 900));
        assert_eq!((some.targets.len(), some.target_count), (1, 7));
    }
}

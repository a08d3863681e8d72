//! How many rolling tasks may be open at once.
//!
//! Promised: a caller has at most [`OF_CALLER_MAX`] unfinished rolling tasks, all callers together [`TOTAL_MAX`], and
//! administrators [`ADMIN_RESERVE`] more of either; one who has none always gets one. Their targets are bounded as
//! well, except for administrators, so that room is left for other operations (`open_room`). A caller is whoever pays
//! for other calls (`shares`): an app cannot get more by naming users, and one of these leaves some of it to the
//! others. What an earlier run of the server left open counts, and is never refused.
//! Absent: how long one may stay open; that is `ROLLOUT_MAX`.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::{Caller, ControlError, Result};
use crate::shares::{Full, Held, Shares};

/// Each is looked at after every outcome, and holds its targets in memory until they are released.
const OF_CALLER_MAX: u64 = 32;
const TOTAL_MAX: u64 = 1024;
const ADMIN_RESERVE: u64 = 32;
/// Held or released: two and a half times what one task may name.
const TARGETS: Shares = Shares { total: 500_000, of_payer: 250_000, each: 250_000 };

/// The rolling tasks that are not over. Clones share one.
#[derive(Clone, Debug, Default)]
pub(in crate::control) struct OpenCount(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    tasks: Held,
    targets: Held,
}

/// One open rolling task, given back when it is dropped.
#[derive(Debug)]
pub(in crate::control) struct RolloutPermit {
    count: OpenCount,
    account: String,
    targets: u64,
}

impl OpenCount {
    pub(in crate::control) fn take(&self, caller: &Caller, targets: usize) -> Result<RolloutPermit> {
        let (account, is_admin) = (caller.account(), caller.is_admin());
        let counts = &mut *self.0.lock();
        let reserve = if is_admin { ADMIN_RESERVE } else { 0 };
        let shares = Shares::new(TOTAL_MAX + reserve, OF_CALLER_MAX + reserve);
        // Administrators who hold the whole reserve must not keep another one from the first.
        let is_first = is_admin && counts.tasks.of_payer(&account) == 0;
        match counts.tasks.full(&account, 1, shares) {
            Some(Full::All(_)) if is_first => {}
            Some(Full::All(_)) => return Err(too_many_rollouts(TOTAL_MAX, false)),
            Some(Full::Account(limit) | Full::Payer(limit)) => return Err(too_many_rollouts(limit, true)),
            None => {}
        }
        if let Some(full) = counts.targets.full(&account, targets as u64, TARGETS).filter(|_| !is_admin) {
            let (limit, is_own) = full.limit();
            return Err(ControlError::TooManyOpen { limit: usize::try_from(limit).unwrap_or(usize::MAX), is_own });
        }
        Ok(self.counted(counts, account, targets))
    }

    /// For one that is open already.
    pub(super) fn take_up(&self, account: String, targets: usize) -> RolloutPermit {
        self.counted(&mut self.0.lock(), account, targets)
    }

    fn counted(&self, counts: &mut Counts, account: String, targets: usize) -> RolloutPermit {
        let targets = targets as u64;
        counts.tasks.add(&account, 1);
        counts.targets.add(&account, targets);
        RolloutPermit { count: self.clone(), account, targets }
    }
}

fn too_many_rollouts(limit: u64, is_own: bool) -> ControlError {
    ControlError::TooManyRollouts { limit: usize::try_from(limit).unwrap_or(usize::MAX), is_own }
}

impl Drop for RolloutPermit {
    fn drop(&mut self) {
        let counts = &mut *self.count.0.lock();
        counts.tasks.remove(&self.account, 1);
        counts.targets.remove(&self.account, self.targets);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proctor_model::Permissions;

    use super::*;

    fn caller(app: &str) -> Caller {
        Caller { permissions: Arc::new(Permissions::default()), ..Caller::local(app) }
    }

    fn limit_of(taken: Result<RolloutPermit>) -> Option<(u64, bool)> {
        match taken {
            Err(ControlError::TooManyRollouts { limit, is_own }) => Some((limit as u64, is_own)),
            Ok(_) | Err(_) => None,
        }
    }

    #[test]
    fn a_caller_has_a_few_and_an_app_no_more_by_naming_users() {
        let open = OpenCount::default();
        let held: Vec<_> = (0..OF_CALLER_MAX).map(|_| open.take(&caller("job"), 1).unwrap()).collect();

        let for_bob = Caller { user: "bob".to_owned(), ..caller("job") };
        assert_eq!(limit_of(open.take(&for_bob, 1)), Some((OF_CALLER_MAX, true)));
        assert!(open.take(&caller("other"), 1).is_ok());
        drop(held);
        assert!(open.take(&for_bob, 1).is_ok());
        let counts = open.0.lock();
        assert!(counts.tasks.is_empty() && counts.targets.is_empty());
    }

    #[test]
    fn one_user_of_an_app_leaves_some_of_its_rolling_tasks_to_the_others() {
        let open = OpenCount::default();
        let [ana, bob] = ["ana", "bob"].map(|user| Caller { user: user.to_owned(), ..caller("job") });
        let _held: Vec<_> = (0..24).map(|_| open.take(&ana, 1).unwrap()).collect();

        assert_eq!(limit_of(open.take(&ana, 1)), Some((24, true)));
        assert!(open.take(&bob, 1).is_ok());
    }

    #[test]
    fn all_callers_share_a_total_beyond_which_administrators_have_a_reserve() {
        let open = OpenCount::default();
        let _held: Vec<_> = (0..TOTAL_MAX).map(|number| open.take_up(format!("\0user{number}"), 1)).collect();

        assert_eq!(limit_of(open.take(&caller("job"), 1)), Some((TOTAL_MAX, false)));
        let reserved: Vec<_> = (0..ADMIN_RESERVE).map(|_| open.take(&Caller::local("boss"), 1).unwrap()).collect();
        assert_eq!(reserved.len() as u64, ADMIN_RESERVE);
        assert_eq!(limit_of(open.take(&Caller::local("boss"), 1)), Some((TOTAL_MAX, false)));
        let _first = open.take(&Caller::local("other"), 1).expect("an administrator who has none gets one");
        assert_eq!(limit_of(open.take(&Caller::local("other"), 1)), Some((TOTAL_MAX, false)));
    }

    #[test]
    fn the_targets_of_rolling_tasks_are_bounded_for_all_but_administrators() {
        let open = OpenCount::default();
        let is_full = |taken: Result<RolloutPermit>| matches!(taken, Err(ControlError::TooManyOpen { .. }));
        let [total, of_caller] = [TARGETS.total, TARGETS.of_payer].map(|limit| usize::try_from(limit).unwrap());
        let _first = open.take(&caller("job"), of_caller).unwrap();

        assert!(is_full(open.take(&caller("job"), 1)));
        let _second = open.take(&caller("other"), total - of_caller).unwrap();
        assert!(is_full(open.take(&caller("third"), 1)));
        assert!(open.take(&Caller::local("boss"), total).is_ok());
    }

    #[test]
    fn an_administrator_gets_more_than_the_app_that_others_use_up() {
        let open = OpenCount::default();
        let _held: Vec<_> = (0..OF_CALLER_MAX).map(|_| open.take(&caller("job"), 1).unwrap()).collect();

        assert!(open.take(&Caller::local("job"), 1).is_ok());
    }
}

//! How many rolling tasks may be open at once.
//!
//! Promised: a caller has at most [`OF_CALLER_MAX`] rolling tasks that are not over, all callers together
//! [`TOTAL_MAX`], and administrators [`ADMIN_RESERVE`] more of either; one who has none gets one in any case. Their targets are bounded as well, for all but
//! administrators, so that room for other operations is left (`open_room`). A caller is who pays for other calls (`budget`): an app
//! cannot get more by naming users. What an earlier life of the server left open counts, and is never refused.
//! Absent: how long one may stay open; that is `ROLLOUT_MAX`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proctor_model::Subject;

use super::super::{Caller, ControlError, Result};

/// Each is looked at after every outcome, and holds its targets in memory until they are released.
const OF_CALLER_MAX: usize = 32;
const TOTAL_MAX: usize = 1024;
const ADMIN_RESERVE: usize = 32;
/// Held or released: two and a half times what one task may name.
const TARGETS_OF_CALLER_MAX: usize = 250_000;
const TARGETS_MAX: usize = 500_000;

/// The rolling tasks that are not over. Clones share one.
#[derive(Clone, Debug, Default)]
pub(in crate::control) struct OpenCount(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    total: Count,
    by_payer: HashMap<Subject, Count>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    tasks: usize,
    targets: usize,
}

/// One open rolling task, given back when it is dropped.
#[derive(Debug)]
pub(in crate::control) struct RolloutPermit {
    count: OpenCount,
    payer: Subject,
    targets: usize,
}

impl OpenCount {
    pub(in crate::control) fn take(&self, caller: &Caller, targets: usize) -> Result<RolloutPermit> {
        let (payer, is_admin) = (caller.payer(), caller.is_admin());
        let counts = &mut *self.0.lock();
        let own = counts.by_payer.get(&payer).copied().unwrap_or_default();
        let reserve = if is_admin { ADMIN_RESERVE } else { 0 };
        let limit = OF_CALLER_MAX + reserve;
        if own.tasks >= limit {
            return Err(ControlError::TooManyRollouts { limit, is_own: true });
        }
        // Administrators who hold the whole reserve must not keep another one from the first.
        let is_first = is_admin && own.tasks == 0;
        if counts.total.tasks >= TOTAL_MAX + reserve && !is_first {
            return Err(ControlError::TooManyRollouts { limit: TOTAL_MAX, is_own: false });
        }
        for (count, limit, is_own) in [(own, TARGETS_OF_CALLER_MAX, true), (counts.total, TARGETS_MAX, false)] {
            if !is_admin && count.targets + targets > limit {
                return Err(ControlError::TooManyOpen { limit, is_own });
            }
        }
        Ok(self.counted(counts, payer, targets))
    }

    /// For one that is open already.
    pub(super) fn take_up(&self, payer: Subject, targets: usize) -> RolloutPermit {
        self.counted(&mut self.0.lock(), payer, targets)
    }

    fn counted(&self, counts: &mut Counts, payer: Subject, targets: usize) -> RolloutPermit {
        for count in [&mut counts.total, counts.by_payer.entry(payer.clone()).or_default()] {
            count.tasks += 1;
            count.targets += targets;
        }
        RolloutPermit { count: self.clone(), payer, targets }
    }
}

impl Drop for RolloutPermit {
    fn drop(&mut self) {
        let counts = &mut *self.count.0.lock();
        for count in [Some(&mut counts.total), counts.by_payer.get_mut(&self.payer)].into_iter().flatten() {
            count.tasks -= 1;
            count.targets -= self.targets;
        }
        counts.by_payer.retain(|_, own| own.tasks > 0);
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

    fn limit_of(taken: Result<RolloutPermit>) -> Option<(usize, bool)> {
        match taken {
            Err(ControlError::TooManyRollouts { limit, is_own }) => Some((limit, is_own)),
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
        assert_eq!((counts.total, counts.by_payer.len()), (Count::default(), 0));
    }

    #[test]
    fn all_callers_share_a_total_beyond_which_administrators_have_a_reserve() {
        let open = OpenCount::default();
        let _held: Vec<_> =
            (0..TOTAL_MAX).map(|number| open.take_up(Subject::User(format!("user{number}")), 1)).collect();

        assert_eq!(limit_of(open.take(&caller("job"), 1)), Some((TOTAL_MAX, false)));
        let reserved: Vec<_> = (0..ADMIN_RESERVE).map(|_| open.take(&Caller::local("boss"), 1).unwrap()).collect();
        assert_eq!(reserved.len(), ADMIN_RESERVE);
        assert_eq!(limit_of(open.take(&Caller::local("boss"), 1)), Some((TOTAL_MAX, false)));
        let _first = open.take(&Caller::local("other"), 1).expect("an administrator who has none gets one");
        assert_eq!(limit_of(open.take(&Caller::local("other"), 1)), Some((TOTAL_MAX, false)));
    }

    #[test]
    fn the_targets_of_rolling_tasks_are_bounded_for_all_but_administrators() {
        let open = OpenCount::default();
        let is_full = |taken: Result<RolloutPermit>| matches!(taken, Err(ControlError::TooManyOpen { .. }));
        let _first = open.take(&caller("job"), TARGETS_OF_CALLER_MAX).unwrap();

        assert!(is_full(open.take(&caller("job"), 1)));
        let _second = open.take(&caller("other"), TARGETS_MAX - TARGETS_OF_CALLER_MAX).unwrap();
        assert!(is_full(open.take(&caller("third"), 1)));
        assert!(open.take(&Caller::local("boss"), TARGETS_MAX).is_ok());
    }

    #[test]
    fn an_administrator_gets_more_than_the_app_that_others_use_up() {
        let open = OpenCount::default();
        let _held: Vec<_> = (0..OF_CALLER_MAX).map(|_| open.take(&caller("job"), 1).unwrap()).collect();

        assert!(open.take(&Caller::local("job"), 1).is_ok());
    }
}

//! How many rolling tasks may be open at once.
//!
//! Promised: a caller has at most [`OF_CALLER_MAX`] rolling tasks that are not over, all callers together
//! [`TOTAL_MAX`], and administrators [`ADMIN_RESERVE`] more. A caller is who pays for other calls (`budget`): an app
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

/// The rolling tasks that are not over. Clones share one.
#[derive(Clone, Debug, Default)]
pub(in crate::control) struct OpenCount(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    by_payer: HashMap<Subject, usize>,
}

/// One open rolling task, given back when it is dropped.
#[derive(Debug)]
pub(in crate::control) struct RolloutPermit {
    count: OpenCount,
    payer: Subject,
}

impl OpenCount {
    pub(in crate::control) fn take(&self, caller: &Caller) -> Result<RolloutPermit> {
        let payer = caller.payer();
        let counts = &mut *self.0.lock();
        if counts.by_payer.get(&payer).copied().unwrap_or(0) >= OF_CALLER_MAX {
            return Err(ControlError::TooManyRollouts { limit: OF_CALLER_MAX, is_own: true });
        }
        let total_max = TOTAL_MAX + if caller.is_admin() { ADMIN_RESERVE } else { 0 };
        if counts.total >= total_max {
            return Err(ControlError::TooManyRollouts { limit: TOTAL_MAX, is_own: false });
        }
        Ok(self.counted(counts, payer))
    }

    /// For one that is open already.
    pub(super) fn take_up(&self, payer: Subject) -> RolloutPermit {
        self.counted(&mut self.0.lock(), payer)
    }

    fn counted(&self, counts: &mut Counts, payer: Subject) -> RolloutPermit {
        counts.total += 1;
        *counts.by_payer.entry(payer.clone()).or_default() += 1;
        RolloutPermit { count: self.clone(), payer }
    }
}

impl Drop for RolloutPermit {
    fn drop(&mut self) {
        let counts = &mut *self.count.0.lock();
        counts.total -= 1;
        if let Some(own) = counts.by_payer.get_mut(&self.payer) {
            *own -= 1;
            if *own == 0 {
                counts.by_payer.remove(&self.payer);
            }
        }
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
        let held: Vec<_> = (0..OF_CALLER_MAX).map(|_| open.take(&caller("job")).unwrap()).collect();

        let for_bob = Caller { user: "bob".to_owned(), ..caller("job") };
        assert_eq!(limit_of(open.take(&for_bob)), Some((OF_CALLER_MAX, true)));
        assert!(open.take(&caller("other")).is_ok());
        drop(held);
        assert!(open.take(&for_bob).is_ok());
        let counts = open.0.lock();
        assert_eq!((counts.total, counts.by_payer.len()), (0, 0));
    }

    #[test]
    fn all_callers_share_a_total_beyond_which_administrators_have_a_reserve() {
        let open = OpenCount::default();
        let _held: Vec<_> = (0..TOTAL_MAX).map(|number| open.take_up(Subject::User(format!("user{number}")))).collect();

        assert_eq!(limit_of(open.take(&caller("job"))), Some((TOTAL_MAX, false)));
        let reserved: Vec<_> = (0..ADMIN_RESERVE).map(|_| open.take(&Caller::local("boss")).unwrap()).collect();
        assert_eq!(reserved.len(), ADMIN_RESERVE);
        assert_eq!(limit_of(open.take(&Caller::local("other"))), Some((TOTAL_MAX, false)));
    }
}

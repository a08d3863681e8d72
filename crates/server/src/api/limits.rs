//! Rate and concurrency limits per caller: calls per second, and calls, waits and streams at the same time.
//!
//! Promised: every refusal says when to retry and is written in the family's own shape. A rate applies to an app (or
//! to a user who comes without one) across all dialects. A [`Quota`] is taken only by authenticated callers; none of
//! them gets more than a share of it, nor an app more than half by naming many users. One user of an app leaves some
//! of either to its other users (`shares`). Administrators have a reserve beyond all of that, of which one app (or
//! user without one) gets a quarter; one that holds none of the reserve always gets one, so that an administrator
//! gets a call through whatever all others hold, other administrators included. Calls that wait, for a body or for
//! events, do not use the quota of calls.
//! Absent: rates per address; a proxy in front knows those better.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{FieldError, Message, messages};

use crate::control::Caller;
use crate::shares::{Allowance, Buckets, Held, Shares, Shortage};

/// Default limit of concurrent calls.
pub(super) const CONCURRENCY: NonZeroU32 = NonZeroU32::new(512).expect("it is not zero");
/// Attempts to sign in, of one address.
pub(super) const SIGN_INS: RateLimit = RateLimit(NonZeroU32::new(10).expect("it is not zero"));
/// Successful sign-ins and password changes of one user, each of which is audited: so many at once, and then one per
/// [`SESSION_PERIOD`].
const SESSIONS_AT_ONCE: u32 = 30;
const SESSION_PERIOD: Duration = Duration::from_secs(10);

/// Calls of one app in a second, on average; a second's worth may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit(NonZeroU32);

impl FromStr for RateLimit {
    type Err = FieldError;

    /// `100/s` or `100`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix("/s").unwrap_or_else(|| text.trim());
        number.parse().map(Self).map_err(|_| FieldError::new("rate_limit", messages::not_a_rate(text)))
    }
}

/// The rates of all callers.
#[derive(Debug)]
pub(super) struct Rates {
    limit: Mutex<Option<Allowance>>,
    buckets: Buckets,
}

impl Rates {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        Self::of(limit.map(second_at_once))
    }

    /// For user actions that are always audited.
    pub(super) fn of_sessions() -> Self {
        Self::of(Some(Allowance { at_once: SESSIONS_AT_ONCE.into(), per_second: SESSION_PERIOD.as_secs_f64().recip() }))
    }

    fn of(limit: Option<Allowance>) -> Self {
        Self { limit: Mutex::new(limit), buckets: Buckets::default() }
    }

    pub(super) fn set_limit(&self, limit: Option<RateLimit>) {
        *self.limit.lock() = limit.map(second_at_once);
    }

    /// Takes one call off the account (`shares`); without one left, how long until there is.
    pub(super) fn take(&self, account: &str, now: Instant) -> Result<(), Duration> {
        let Some(limit) = *self.limit.lock() else { return Ok(()) };
        self.buckets.take(account, 1.0, limit, now).map_err(Shortage::wait)
    }
}

/// A second's worth may come at once.
fn second_at_once(RateLimit(limit): RateLimit) -> Allowance {
    let per_second = f64::from(limit.get());
    Allowance { at_once: per_second, per_second }
}

/// How many of something callers may have at the same time. Clones share one.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    what: Message,
    shares: Shares,
    /// Beyond the total, for administrators.
    reserve: Shares,
    taken: Arc<Mutex<QuotaUse>>,
}

/// One app's administrators get this part of the reserve.
const RESERVE_PARTS: u32 = 4;

#[derive(Debug, Default)]
struct QuotaUse {
    held: Held,
    /// Of the reserve, which counts nowhere else.
    reserved: Held,
}

/// Which part of a [`Quota`] is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(super) what: Message,
    pub(super) limit: u64,
    pub(super) is_own: bool,
}

impl Quota {
    /// Calls at the same time; each of them holds a decoded body and takes turns at the store.
    pub(super) fn calls(total: NonZeroU32) -> Self {
        let total = total.get();
        Self::new(messages::concurrent_requests(), total, total.div_ceil(2), (total / 16).max(4))
    }

    /// Calls that wait for events; each holds a connection and asks the store after every event.
    pub(super) fn waits() -> Self {
        Self::new(messages::waiting_requests(), 1024, 128, 32)
    }

    /// Answers that go through the whole fleet, the two that are computed and those that wait for their turn.
    pub(super) fn fleet_questions() -> Self {
        Self::new(messages::fleet_questions(), 64, 8, 8)
    }

    /// Large bodies that are parsed or wait for it: with two at a time, those of a whole lane are done before anybody
    /// has waited too long.
    pub(super) fn parsing() -> Self {
        Self::new(messages::too_many_large_bodies(), 64, 16, 16)
    }

    pub(super) fn streams() -> Self {
        Self::new(messages::event_streams(), 512, 64, 32)
    }

    fn new(what: Message, total: u32, each: u32, reserve: u32) -> Self {
        let shares = Shares { each: each.into(), ..Shares::new(total.into(), total.div_ceil(2).into()) };
        let reserve = Shares::new(reserve.into(), (reserve / RESERVE_PARTS).into());
        Self { what, shares, reserve, taken: Arc::default() }
    }

    pub(super) fn taken(&self) -> u64 {
        let taken = self.taken.lock();
        taken.held.total() + taken.reserved.total()
    }

    pub(super) fn take(&self, caller: &Caller) -> Result<QuotaPermit, Exceeded> {
        self.take_as(caller.account(), caller.is_admin())
    }

    /// As [`Self::take`], for a call that may release its permit and take it again.
    pub(super) fn take_turn(&self, caller: &Caller) -> Result<CallTurn, Exceeded> {
        let turn = CallTurn {
            quota: self.clone(),
            caller: caller.account(),
            is_administrator: caller.is_admin(),
            permit: Arc::default(),
        };
        turn.resume()?;
        Ok(turn)
    }

    /// By the caller's account.
    pub(super) fn take_as(&self, caller: String, is_administrator: bool) -> Result<QuotaPermit, Exceeded> {
        let taken = &mut *self.taken.lock();
        let Some(full) = taken.held.full(&caller, 1, self.shares) else {
            taken.held.add(&caller, 1);
            return Ok(QuotaPermit { quota: self.clone(), caller, is_reserved: false });
        };
        if !is_administrator || !self.has_reserve(&taken.reserved, &caller) {
            let (limit, is_own) = full.limit();
            return Err(Exceeded { what: self.what.clone(), limit, is_own });
        }
        taken.reserved.add(&caller, 1);
        Ok(QuotaPermit { quota: self.clone(), caller, is_reserved: true })
    }

    /// The number of payers who are administrators bounds what is taken beyond the reserve.
    fn has_reserve(&self, reserved: &Held, caller: &str) -> bool {
        match reserved.of_payer(caller) {
            0 => self.reserve.total > 0,
            _ => reserved.full(caller, 1, self.reserve).is_none(),
        }
    }
}

/// A permit that is not held while its call waits for something else. Clones share one.
#[derive(Clone, Debug)]
pub(super) struct CallTurn {
    quota: Quota,
    caller: String,
    is_administrator: bool,
    permit: Arc<Mutex<Option<QuotaPermit>>>,
}

impl CallTurn {
    /// One of another quota, for the same caller.
    pub(super) fn share_of(&self, quota: &Quota) -> Result<QuotaPermit, Exceeded> {
        quota.take_as(self.caller.clone(), self.is_administrator)
    }

    /// Others may have it now.
    pub(super) fn pause(&self) {
        *self.permit.lock() = None;
    }

    pub(super) fn resume(&self) -> Result<(), Exceeded> {
        let mut permit = self.permit.lock();
        if permit.is_none() {
            *permit = Some(self.quota.take_as(self.caller.clone(), self.is_administrator)?);
        }
        Ok(())
    }
}

/// One of a [`Quota`], given back when it is dropped.
#[derive(Debug)]
pub(super) struct QuotaPermit {
    quota: Quota,
    caller: String,
    is_reserved: bool,
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let taken = &mut *self.quota.taken.lock();
        let held = if self.is_reserved { &mut taken.reserved } else { &mut taken.held };
        held.remove(&self.caller, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(text: &str) -> Rates {
        Rates::new(Some(text.parse().unwrap()))
    }

    #[test]
    fn a_second_of_calls_may_come_at_once_and_then_at_their_pace() {
        let (rates, now) = (rates("4/s"), Instant::now());

        for _ in 0..4 {
            assert_eq!(rates.take("a", now), Ok(()));
        }
        assert_eq!(rates.take("a", now), Err(Duration::from_millis(250)));
        assert_eq!(rates.take("b", now), Ok(()), "another app has an account of its own");
        assert_eq!(rates.take("a", now + Duration::from_millis(250)), Ok(()));
        assert!(rates.take("a", now + Duration::from_millis(300)).is_err());
    }

    #[test]
    fn over_any_time_no_more_than_the_rate_and_one_second_gets_through() {
        let (rates, now) = (rates("10"), Instant::now());

        let let_through = (0..5000).filter(|step| rates.take("a", now + Duration::from_millis(*step)).is_ok()).count();

        assert!((50..=60).contains(&let_through), "{let_through}");
    }

    #[test]
    fn quiet_callers_are_forgotten() {
        let (rates, now) = (rates("1"), Instant::now());
        for number in 0..10_000 {
            rates.take(&number.to_string(), now).unwrap();
        }

        rates.take("new", now + Duration::from_secs(1)).unwrap();

        assert_eq!(rates.buckets.payers(), 1);
    }

    #[test]
    fn a_rate_is_a_number_per_second() {
        assert!("100/s".parse::<RateLimit>().is_ok() && " 7 ".parse::<RateLimit>().is_ok());
        for bad in ["0", "-1", "x", "", "5/m", "1.5/s"] {
            assert!(bad.parse::<RateLimit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nobody_gets_more_than_a_part_and_administrators_have_a_reserve() {
        let quota = Quota::new(Message::foreign("calls"), 4, 2, 1);
        let take = |caller: &str, is_administrator| quota.take_as(caller.to_owned(), is_administrator);
        let held = [take("a", false).unwrap(), take("a", false).unwrap(), take("b", false).unwrap()];

        assert_eq!(take("a", false).unwrap_err(), Exceeded { what: Message::foreign("calls"), limit: 2, is_own: true });
        let last = take("c", false).unwrap();
        assert_eq!(
            take("d", false).unwrap_err(),
            Exceeded { what: Message::foreign("calls"), limit: 4, is_own: false }
        );
        let reserved = take("boss", true).unwrap();
        assert!(!take("boss", true).unwrap_err().is_own);
        drop((held, last, reserved));
        assert!(take("d", false).is_ok());
        assert!(quota.taken.lock().held.is_empty());
    }

    #[test]
    fn an_app_gets_no_more_than_half_by_naming_users() {
        let quota = Quota::new(Message::foreign("calls"), 8, 2, 1);
        let take = |caller: &str, is_administrator| quota.take_as(caller.to_owned(), is_administrator);
        let held: Vec<_> = ["app\0a", "app\0a", "app\0b", "app\0c"].map(|caller| take(caller, false).unwrap()).into();

        assert_eq!(
            take("app\0d", false).unwrap_err(),
            Exceeded { what: Message::foreign("calls"), limit: 4, is_own: true }
        );
        let others = [take("other\0a", false).unwrap(), take("\0app", false).unwrap(), take("\0a", false).unwrap()];
        let reserved = take("app\0boss", true).unwrap();
        assert!(take("app\0boss", true).unwrap_err().is_own);
        drop((held, others, reserved));
        let taken = quota.taken.lock();
        assert!(taken.held.is_empty() && taken.reserved.is_empty());
    }

    #[test]
    fn one_user_leaves_some_of_the_calls_of_an_app_to_its_others() {
        let quota = Quota::calls(512.try_into().unwrap());
        let take_all = |caller: &str, is_administrator| -> Vec<_> {
            std::iter::from_fn(|| quota.take_as(caller.to_owned(), is_administrator).ok()).take(1000).collect()
        };
        let of_ana = take_all("app\0ana", false);

        assert_eq!((of_ana.len(), take_all("app\0bob", false).len()), (192, 64));
        let _of_bob = take_all("app\0bob", false);
        let of_administrator = take_all("app\0boss", true);
        assert_eq!((of_administrator.len(), take_all("app\0chief", true).len()), (6, 2), "nor of its reserve");
    }

    #[test]
    fn an_administrator_gets_one_whatever_all_others_hold() {
        let quota = Quota::new(Message::foreign("calls"), 8, 4, 8);
        let take_all = |caller: &str, is_administrator| -> Vec<_> {
            std::iter::from_fn(|| quota.take_as(caller.to_owned(), is_administrator).ok()).take(1000).collect()
        };
        let others = [take_all("app\0app", false), take_all("\0bob", false)];
        assert_eq!((others[0].len(), others[1].len(), take_all("\0eve", false).len()), (4, 4, 0));

        // Administrators of one app, under many names, and others besides.
        let of_app: Vec<_> = (0..20).flat_map(|user| take_all(&format!("app\0admin{user}"), true)).collect();
        let administrators: Vec<_> = (0..20).map(|user| take_all(&format!("\0admin{user}"), true)).collect();

        assert_eq!(of_app.len(), 2, "a quarter of the reserve for one app");
        assert_eq!(administrators.iter().map(Vec::len).sum::<usize>(), 3 * 2 + 17, "each gets one at least");
        assert!(administrators.iter().all(|own| !own.is_empty()));
        assert_eq!(take_all("\0boss", true).len(), 1);
        assert!(take_all("\0eve", false).is_empty(), "what administrators have beyond is nobody else's");
    }

    #[test]
    fn what_an_administrator_holds_of_the_reserve_takes_nothing_from_its_app() {
        let quota = Quota::new(Message::foreign("calls"), 4, 2, 4);
        let take = |caller: &str, is_administrator| quota.take_as(caller.to_owned(), is_administrator);
        let held = [take("app\0ana", false).unwrap(), take("app\0ana", false).unwrap()];
        let reserved = take("app\0boss", true).unwrap();
        drop(held);

        let again = [take("app\0ana", false).unwrap(), take("app\0bob", false).unwrap()];

        assert_eq!(quota.taken(), 3);
        drop((reserved, again));
        assert_eq!(quota.taken(), 0);
    }

    #[test]
    fn a_call_that_waits_leaves_its_permit_to_others() {
        let quota = Quota::new(Message::foreign("calls"), 1, 1, 0);
        let (slow, other) = (Caller::local("slow"), Caller::local("other"));
        let turn = quota.take_turn(&slow).unwrap();
        assert!(quota.take(&other).is_err());

        turn.pause();
        let held = quota.take(&other).unwrap();

        assert!(turn.resume().is_err());
        drop(held);
        assert!(turn.resume().is_ok() && turn.resume().is_ok());
        assert_eq!(quota.taken(), 1, "once is enough");
        drop(turn);
        assert_eq!(quota.taken(), 0);
    }
}

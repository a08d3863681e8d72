//! How much one caller may ask at once: calls in a second, and calls, waits and streams at the same time.
//!
//! Promised: every refusal says when to come again and is written in the family's own shape. A rate
//! counts for an app (for a user who comes without one, for the user) over all dialects. A [`Quota`] is
//! taken only by callers who have proved who they are; none of them gets more than a part of it, nor an app
//! more than half by naming many users. Administrators have a reserve beyond all of that, of which one app (or user
//! without one) gets a quarter; one that holds nothing of the reserve gets one in any case, so that whatever all others
//! hold, administrators among them, an administrator gets a call through. Calls that wait, for a
//! body or for events, take none of the quota of calls. Absent: rates of
//! addresses; a proxy in front knows those better.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{FieldError, Message, messages};

use crate::control::Caller;

/// Calls at the same time where nothing else is said.
pub(super) const CONCURRENCY: NonZeroU32 = NonZeroU32::new(512).expect("it is not zero");
/// Attempts to sign in, of one address.
pub(super) const SIGN_INS: RateLimit = RateLimit(NonZeroU32::new(10).expect("it is not zero"));
/// Sign-ins and password changes of one user that succeed, each of which is in the audit: so many at once, and then
/// one in every [`SESSION_PERIOD`].
const SESSIONS_AT_ONCE: u32 = 30;
const SESSION_PERIOD: Duration = Duration::from_secs(10);
/// Callers whose rate is remembered; those who were quiet for a second are forgotten first.
const CALLERS_MAX: usize = 10_000;

/// Calls of one app in a second, on average; a second's worth may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit(NonZeroU32);

impl FromStr for RateLimit {
    type Err = FieldError;

    /// `100/s` or `100`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix("/s").unwrap_or_else(|| text.trim());
        number.parse().map(Self).map_err(|_| {
            FieldError::new("rate_limit", format!("'{text}' is not a number of calls per second such as 100/s"))
        })
    }
}

/// The rates of all callers.
#[derive(Debug)]
pub(super) struct Rates {
    limit: Mutex<Option<Allowance>>,
    /// By a hash of the caller's name: callers choose how long that is.
    buckets: Mutex<HashMap<u64, Bucket>>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    at_once: f64,
    per_second: f64,
}

impl Allowance {
    /// A second's worth may come at once.
    fn of(RateLimit(limit): RateLimit) -> Self {
        let per_second = f64::from(limit.get());
        Self { at_once: per_second, per_second }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn refilled(self, limit: Allowance, now: Instant) -> Self {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * limit.per_second;
        Self { tokens: (self.tokens + gained).min(limit.at_once), at: now }
    }
}

impl Rates {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        Self::of(limit.map(Allowance::of))
    }

    /// For what a user does that is always in the audit.
    pub(super) fn of_sessions() -> Self {
        Self::of(Some(Allowance { at_once: SESSIONS_AT_ONCE.into(), per_second: SESSION_PERIOD.as_secs_f64().recip() }))
    }

    fn of(limit: Option<Allowance>) -> Self {
        Self { limit: Mutex::new(limit), buckets: Mutex::default(), hasher: RandomState::new() }
    }

    pub(super) fn set_limit(&self, limit: Option<RateLimit>) {
        *self.limit.lock() = limit.map(Allowance::of);
    }

    /// Takes one call off the caller's account; without one left, how long until there is.
    pub(super) fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        let Some(limit) = *self.limit.lock() else { return Ok(()) };
        let caller = self.hasher.hash_one(caller);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= CALLERS_MAX && !buckets.contains_key(&caller) {
            make_room(&mut buckets, limit, now);
        }
        let full = Bucket { tokens: limit.at_once, at: now };
        let bucket = buckets.entry(caller).or_insert(full);
        *bucket = bucket.refilled(limit, now);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / limit.per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

/// Those that are full again need not be remembered; if there are none, everybody begins anew.
fn make_room(buckets: &mut HashMap<u64, Bucket>, limit: Allowance, now: Instant) {
    buckets.retain(|_, bucket| bucket.refilled(limit, now).tokens < limit.at_once);
    if buckets.len() >= CALLERS_MAX {
        buckets.clear();
    }
}

/// How many of something callers may have at the same time. Clones share one.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    what: Message,
    total: u32,
    /// Of one app and user.
    each: u32,
    /// Of one app, whomever it calls for.
    of_payer: u32,
    /// Beyond the total, for administrators.
    reserve: u32,
    taken: Arc<Mutex<QuotaUse>>,
}

/// One app's administrators get this part of the reserve.
const RESERVE_PARTS: u32 = 4;

#[derive(Debug, Default)]
struct QuotaUse {
    total: u32,
    by_caller: HashMap<String, u32>,
    by_payer: HashMap<String, u32>,
    /// Of the reserve, which counts nowhere else.
    reserved: u32,
    reserved_by_payer: HashMap<String, u32>,
}

/// Which part of a [`Quota`] is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(super) what: Message,
    pub(super) limit: u32,
    pub(super) is_own: bool,
}

impl Quota {
    /// Calls at the same time; each of them holds a decoded body and takes turns at the store.
    pub(super) fn calls(total: NonZeroU32) -> Self {
        Self::new(messages::concurrent_requests(), total.get(), total.get().div_ceil(2), (total.get() / 16).max(4))
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
        Self { what, total, each, of_payer: total.div_ceil(2), reserve, taken: Arc::default() }
    }

    pub(super) fn taken(&self) -> u32 {
        let taken = self.taken.lock();
        taken.total + taken.reserved
    }

    pub(super) fn take(&self, caller: &Caller) -> Result<QuotaPermit, Exceeded> {
        self.take_as(key_of(caller), caller.is_admin())
    }

    /// As [`Self::take`], for a call that may give its permit back and take it again.
    pub(super) fn take_turn(&self, caller: &Caller) -> Result<CallTurn, Exceeded> {
        let turn = CallTurn {
            quota: self.clone(),
            caller: key_of(caller),
            is_administrator: caller.is_admin(),
            permit: Arc::default(),
        };
        turn.resume()?;
        Ok(turn)
    }

    /// By the key of the caller.
    pub(super) fn take_as(&self, caller: String, is_administrator: bool) -> Result<QuotaPermit, Exceeded> {
        let (taken, payer) = (&mut *self.taken.lock(), payer_of(&caller));
        let Some(exceeded) = self.exceeded(taken, &caller, payer) else {
            taken.total += 1;
            *taken.by_payer.entry(payer.to_owned()).or_default() += 1;
            *taken.by_caller.entry(caller.clone()).or_default() += 1;
            return Ok(QuotaPermit { quota: self.clone(), caller, is_reserved: false });
        };
        if !is_administrator || !self.has_reserve(taken, payer) {
            return Err(exceeded);
        }
        taken.reserved += 1;
        *taken.reserved_by_payer.entry(payer.to_owned()).or_default() += 1;
        Ok(QuotaPermit { quota: self.clone(), caller, is_reserved: true })
    }

    /// Which part has no room for one more of this caller.
    fn exceeded(&self, taken: &QuotaUse, caller: &str, payer: &str) -> Option<Exceeded> {
        let exceeded = |limit, is_own| Some(Exceeded { what: self.what.clone(), limit, is_own });
        if taken.by_caller.get(caller).is_some_and(|own| *own >= self.each) {
            return exceeded(self.each, true);
        }
        if taken.by_payer.get(payer).is_some_and(|own| *own >= self.of_payer) {
            return exceeded(self.of_payer, true);
        }
        if taken.total >= self.total {
            return exceeded(self.total, false);
        }
        None
    }

    /// The number of payers who are administrators bounds what is taken beyond the reserve.
    fn has_reserve(&self, taken: &QuotaUse, payer: &str) -> bool {
        match taken.reserved_by_payer.get(payer) {
            None => self.reserve > 0,
            Some(own) => *own < self.reserve / RESERVE_PARTS && taken.reserved < self.reserve,
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

/// An app may call for many users: each of them is a caller.
pub(super) fn key_of(caller: &Caller) -> String {
    format!("{}\0{}", caller.app, caller.user)
}

/// Who answers for the caller with this key: the app, or the user who comes without one.
pub(super) fn payer_of(key: &str) -> &str {
    match key.split_once('\0') {
        Some(("", _)) | None => key,
        Some((app, _)) => app,
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
        if self.is_reserved {
            taken.reserved -= 1;
            give_back(&mut taken.reserved_by_payer, payer_of(&self.caller));
            return;
        }
        taken.total -= 1;
        give_back(&mut taken.by_caller, &self.caller);
        give_back(&mut taken.by_payer, payer_of(&self.caller));
    }
}

fn give_back(by_key: &mut HashMap<String, u32>, key: &str) {
    if let Some(own) = by_key.get_mut(key) {
        *own -= 1;
        if *own == 0 {
            by_key.remove(key);
        }
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
        for number in 0..CALLERS_MAX {
            rates.take(&number.to_string(), now).unwrap();
        }

        rates.take("new", now + Duration::from_secs(1)).unwrap();

        assert_eq!(rates.buckets.lock().len(), 1);
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
        let quota = Quota::new("calls".into(), 4, 2, 1);
        let take = |caller: &str, is_administrator| quota.take_as(caller.to_owned(), is_administrator);
        let held = [take("a", false).unwrap(), take("a", false).unwrap(), take("b", false).unwrap()];

        assert_eq!(take("a", false).unwrap_err(), Exceeded { what: "calls".into(), limit: 2, is_own: true });
        let last = take("c", false).unwrap();
        assert_eq!(take("d", false).unwrap_err(), Exceeded { what: "calls".into(), limit: 4, is_own: false });
        let reserved = take("boss", true).unwrap();
        assert!(!take("boss", true).unwrap_err().is_own);
        drop((held, last, reserved));
        assert!(take("d", false).is_ok());
        assert_eq!(quota.taken.lock().total, 0);
        assert!(quota.taken.lock().by_caller.is_empty());
    }

    #[test]
    fn an_app_gets_no_more_than_half_by_naming_users() {
        let quota = Quota::new("calls".into(), 8, 2, 1);
        let take = |caller: &str, is_administrator| quota.take_as(caller.to_owned(), is_administrator);
        let held: Vec<_> = ["app\0a", "app\0a", "app\0b", "app\0c"].map(|caller| take(caller, false).unwrap()).into();

        assert_eq!(take("app\0d", false).unwrap_err(), Exceeded { what: "calls".into(), limit: 4, is_own: true });
        let others = [take("other\0a", false).unwrap(), take("\0app", false).unwrap(), take("\0a", false).unwrap()];
        let reserved = take("app\0boss", true).unwrap();
        assert!(take("app\0boss", true).unwrap_err().is_own);
        drop((held, others, reserved));
        let taken = quota.taken.lock();
        assert_eq!((taken.total, taken.by_caller.len(), taken.by_payer.len()), (0, 0, 0));
        assert_eq!((taken.reserved, taken.reserved_by_payer.len()), (0, 0));
    }

    #[test]
    fn an_administrator_gets_one_whatever_all_others_hold() {
        let quota = Quota::new("calls".into(), 8, 4, 8);
        let take_all = |caller: &str, is_administrator| -> Vec<_> {
            std::iter::from_fn(|| quota.take_as(caller.to_owned(), is_administrator).ok()).take(1000).collect()
        };
        let others = [take_all("app\0ana", false), take_all("\0bob", false)];
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
        let quota = Quota::new("calls".into(), 4, 2, 4);
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
        let quota = Quota::new("calls".into(), 1, 1, 0);
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

//! Who a call is charged to, and how much of an app's share one of its users gets.
//!
//! Promised: an app has one share of whatever is bounded, whichever users it names, and a user it names gets at most
//! three quarters of that ([`part_of_user`]), so that one user of an app never starves all others. An app that calls
//! for itself, and a user who comes without one, get the whole share. Both what is held concurrently ([`Held`]) and
//! what refills over time ([`Buckets`]) are counted here, in bounded memory.
//! Absent: what is counted, and administrators, whose reserves are up to the one who counts.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Accounts that are not full again, of payers and of the users of one payer. Beyond that, those who have used least
/// are forgotten.
const PAYERS_MAX: usize = 10_000;
const USERS_MAX: usize = 1_000;

/// The account of an app and a user; either may be empty.
pub(crate) fn account_of(app: &str, user: &str) -> String {
    format!("{app}\0{user}")
}

/// Who an account is charged to: the app, or the user who comes without one. Anything else with an account, such as
/// an address, is charged itself.
pub(crate) fn payer_of(account: &str) -> &str {
    match account.split_once('\0') {
        Some(("", _)) | None => account,
        Some((app, _)) => app,
    }
}

/// The user an app calls for, unless it calls for itself.
fn named_user(account: &str) -> Option<&str> {
    let (app, user) = account.split_once('\0')?;
    (!app.is_empty() && !user.is_empty() && app != user).then_some(user)
}

/// What one user gets of an app's share: some of a small one, too.
pub(crate) fn part_of_user(of_payer: u64) -> u64 {
    of_payer - of_payer / 4
}

/// How much there is of something that is held, and how much of it one may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) total: u64,
    /// Of an app, whomever it calls for.
    pub(crate) of_payer: u64,
    /// Of an app and a user; a named user never gets more than [`part_of_user`].
    pub(crate) each: u64,
}

impl Shares {
    pub(crate) fn new(total: u64, of_payer: u64) -> Self {
        Self { total, of_payer, each: of_payer }
    }

    fn of_account(&self, account: &str) -> u64 {
        match named_user(account) {
            Some(_) => self.each.min(part_of_user(self.of_payer)),
            None => self.each,
        }
    }
}

/// Whose part is used up, and how much it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Account(u64),
    Payer(u64),
    All(u64),
}

impl Full {
    /// How much there is, and whether others may still have some.
    pub(crate) fn limit(self) -> (u64, bool) {
        match self {
            Self::Account(limit) | Self::Payer(limit) => (limit, true),
            Self::All(limit) => (limit, false),
        }
    }
}

/// What is held, by whom.
#[derive(Debug, Default)]
pub(crate) struct Held {
    total: u64,
    by_payer: HashMap<String, u64>,
    by_account: HashMap<String, u64>,
}

impl Held {
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn of_payer(&self, account: &str) -> u64 {
        self.by_payer.get(payer_of(account)).copied().unwrap_or(0)
    }

    /// Whose part has no room for so much more.
    pub(crate) fn full(&self, account: &str, more: u64, shares: Shares) -> Option<Full> {
        let own = self.by_account.get(account).copied().unwrap_or(0);
        let of_account = shares.of_account(account);
        if own + more > of_account {
            Some(Full::Account(of_account))
        } else if self.of_payer(account) + more > shares.of_payer {
            Some(Full::Payer(shares.of_payer))
        } else if self.total + more > shares.total {
            Some(Full::All(shares.total))
        } else {
            None
        }
    }

    pub(crate) fn add(&mut self, account: &str, amount: u64) {
        self.total += amount;
        *self.by_payer.entry(payer_of(account).to_owned()).or_default() += amount;
        *self.by_account.entry(account.to_owned()).or_default() += amount;
    }

    pub(crate) fn remove(&mut self, account: &str, amount: u64) {
        self.total -= amount;
        subtract(&mut self.by_payer, payer_of(account), amount);
        subtract(&mut self.by_account, account, amount);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0 && self.by_payer.is_empty() && self.by_account.is_empty()
    }
}

fn subtract(by_key: &mut HashMap<String, u64>, key: &str, amount: u64) {
    if let Some(own) = by_key.get_mut(key) {
        *own -= amount;
        if *own == 0 {
            by_key.remove(key);
        }
    }
}

/// How much a payer may take at once, and how fast it refills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) at_once: f64,
    pub(crate) per_second: f64,
}

impl Allowance {
    fn of_user(self) -> Self {
        // What is counted in ones is not divided if there is one.
        let at_once = (self.at_once * 0.75).ceil();
        Self { at_once, per_second: self.per_second * at_once / self.at_once }
    }

    fn wait_for(self, missing: f64) -> Duration {
        Duration::try_from_secs_f64(missing.max(0.0) / self.per_second).unwrap_or(Duration::MAX)
    }
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// It refills over time.
    For(Duration),
    /// It is more than the account can ever have at once.
    ForEver,
}

impl Shortage {
    pub(crate) fn wait(self) -> Duration {
        match self {
            Self::For(wait) => wait,
            Self::ForEver => Duration::MAX,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn left(&self, limit: Allowance, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * limit.per_second;
        (self.left + gained).min(limit.at_once)
    }
}

/// What is taken and refills over time, by account.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// By hashes: callers choose how long their names are.
    hasher: RandomState,
    by_payer: Mutex<HashMap<u64, OfPayer>>,
}

#[derive(Debug)]
struct OfPayer {
    bucket: Bucket,
    by_user: HashMap<u64, Bucket>,
}

impl Buckets {
    /// Takes as much as is wanted, or nothing: then it says how long to wait for it, if that helps.
    pub(crate) fn take(&self, account: &str, wanted: f64, limit: Allowance, now: Instant) -> Result<(), Shortage> {
        self.take_on_credit(account, wanted, 0.0, limit, now)
    }

    /// As [`Self::take`], with so much more than there is.
    pub(crate) fn take_on_credit(
        &self,
        account: &str,
        wanted: f64,
        credit: f64,
        limit: Allowance,
        now: Instant,
    ) -> Result<(), Shortage> {
        let mut by_payer = self.by_payer.lock();
        let payer = self.hash(payer_of(account));
        let user = named_user(account).map(|user| self.hash(user));
        let own = by_payer.get(&payer);
        let left = own.map_or(limit.at_once, |own| own.bucket.left(limit, now));
        let of_user = limit.of_user();
        let left_of_user = user.map(|user| {
            let bucket = own.and_then(|own| own.by_user.get(&user));
            bucket.map_or(of_user.at_once, |bucket| bucket.left(of_user, now))
        });
        let at_once = if user.is_some() { of_user.at_once } else { limit.at_once };
        if wanted > at_once + credit {
            return Err(Shortage::ForEver);
        }
        let wait =
            |left: f64, limit: Allowance| (wanted > left + credit).then(|| limit.wait_for(wanted - left - credit));
        let waits = wait(left, limit).max(left_of_user.and_then(|left| wait(left, of_user)));
        if let Some(wait) = waits {
            return Err(Shortage::For(wait));
        }
        if own.is_none() {
            make_room(&mut by_payer, PAYERS_MAX, |own| own.bucket.left(limit, now) / limit.at_once);
        }
        let full = Bucket { left: limit.at_once, at: now };
        let own = by_payer.entry(payer).or_insert_with(|| OfPayer { bucket: full, by_user: HashMap::new() });
        own.bucket = Bucket { left: left - wanted, at: now };
        if let Some((user, left)) = user.zip(left_of_user) {
            if !own.by_user.contains_key(&user) {
                make_room(&mut own.by_user, USERS_MAX, |bucket| bucket.left(of_user, now) / of_user.at_once);
            }
            own.by_user.insert(user, Bucket { left: left - wanted, at: now });
        }
        Ok(())
    }

    fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    #[cfg(test)]
    pub(crate) fn payers(&self) -> usize {
        self.by_payer.lock().len()
    }
}

/// Makes room for one more: those that are full again need not be remembered. If all are in use, the half that has
/// used least starts afresh.
fn make_room<K: Copy + Eq + Hash, V>(by_key: &mut HashMap<K, V>, max: usize, fullness: impl Fn(&V) -> f64) {
    if by_key.len() < max {
        return;
    }
    by_key.retain(|_, bucket| fullness(bucket) < 1.0);
    if by_key.len() < max {
        return;
    }
    let mut by_use: Vec<(K, f64)> = by_key.iter().map(|(key, bucket)| (*key, fullness(bucket))).collect();
    by_use.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    for (key, _) in &by_use[..by_use.len().div_ceil(2)] {
        by_key.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Allowance = Allowance { at_once: 8.0, per_second: 8.0 };

    #[test]
    fn one_user_of_an_app_leaves_a_quarter_of_what_is_held_to_the_others() {
        let (mut held, shares) = (Held::default(), Shares::new(16, 8));
        let take = |held: &mut Held, account: &str| match held.full(account, 1, shares) {
            None => {
                held.add(account, 1);
                Ok(())
            }
            Some(full) => Err(full),
        };

        let of_ana = std::iter::from_fn(|| take(&mut held, "app\0ana").ok()).count();
        let refused = take(&mut held, "app\0ana");
        let of_others = std::iter::from_fn(|| take(&mut held, "app\0bob").ok()).count();

        assert_eq!((of_ana, refused, of_others), (6, Err(Full::Account(6)), 2));
        assert_eq!(take(&mut held, "app\0bob"), Err(Full::Payer(8)));
        for (account, amount) in [("app\0ana", 6), ("app\0bob", 2)] {
            held.remove(account, amount);
        }
        assert!(held.is_empty());
    }

    #[test]
    fn who_shares_with_nobody_gets_the_whole_share() {
        for account in ["app\0", "app\0app", "\0ana", "192.0.2.1"] {
            let (mut held, shares) = (Held::default(), Shares::new(16, 8));
            held.add(account, 7);

            assert_eq!(held.full(account, 1, shares), None, "{account}");
            held.add(account, 1);
            assert!(held.full(account, 1, shares).is_some(), "{account}");
            let (buckets, now) = (Buckets::default(), Instant::now());
            assert_eq!(buckets.take(account, 8.0, LIMIT, now), Ok(()), "{account}");
            assert!(buckets.take(account, 1.0, LIMIT, now).is_err(), "{account}");
        }
    }

    #[test]
    fn a_share_of_one_is_not_parted() {
        let (buckets, one, now) = (Buckets::default(), Allowance { at_once: 1.0, per_second: 1.0 }, Instant::now());

        assert_eq!([0, 1, 2, 3, 4, 5, 8].map(part_of_user), [0, 1, 2, 3, 3, 4, 6]);
        assert_eq!(buckets.take("app\0ana", 1.0, one, now), Ok(()));
        assert_eq!(buckets.take("app\0ana", 1.0, one, now), Err(Shortage::For(Duration::from_secs(1))));
    }

    #[test]
    fn one_user_of_an_app_leaves_a_quarter_of_what_comes_back_to_the_others() {
        let (buckets, now) = (Buckets::default(), Instant::now());
        let take = |account: &str, at| buckets.take(account, 1.0, LIMIT, at);
        let count = |account: &str, at| std::iter::from_fn(|| take(account, at).ok()).count();

        assert_eq!((count("app\0ana", now), count("app\0bob", now), count("app\0eve", now)), (6, 2, 0));
        let later = now + Duration::from_secs(1);
        assert_eq!((count("app\0ana", later), count("app\0bob", later)), (6, 2));
        let wait = |account| take(account, later).unwrap_err().wait();
        assert!(wait("app\0ana") > wait("app\0bob") / 2);
        assert_eq!(count("other\0ana", later), 6, "the same name under another app is another account");
    }

    #[test]
    fn more_than_an_account_ever_has_is_not_worth_waiting_for() {
        let (buckets, now) = (Buckets::default(), Instant::now());
        let take = |account, wanted, credit| buckets.take_on_credit(account, wanted, credit, LIMIT, now);

        assert_eq!(take("app\0ana", 7.0, 0.0), Err(Shortage::ForEver), "of the eight, one user gets six");
        assert_eq!(take("app\0", 9.0, 0.0), Err(Shortage::ForEver));
        assert_eq!(take("app\0ana", 7.0, 1.0), Ok(()));
        assert_eq!(take("app\0ana", 6.0, 0.0), Err(Shortage::For(Duration::from_secs_f64(7.0 / 6.0))));
    }

    #[test]
    fn an_app_that_makes_up_users_gets_nothing_more_and_takes_no_memory() {
        let (buckets, now) = (Buckets::default(), Instant::now());
        let limit = Allowance { at_once: 100_000.0, per_second: 0.001 };
        assert_eq!(buckets.take("app\0greedy", 75_000.0, limit, now), Ok(()));

        for number in 0..20_000 {
            assert_eq!(buckets.take(&format!("app\0user{number}"), 1.0, limit, now), Ok(()));
        }

        let of_app = buckets.by_payer.lock().values().map(|own| own.by_user.len()).sum::<usize>();
        assert!(of_app <= USERS_MAX, "{of_app}");
        assert!(buckets.take("app\0greedy", 1.0, limit, now).is_err(), "who has used most is remembered");
        assert!(buckets.take("app\0new", 5_001.0, limit, now).is_err() && buckets.payers() == 1);
    }

    #[test]
    fn payers_beyond_the_bound_cost_those_who_used_most_nothing_back() {
        let (buckets, now) = (Buckets::default(), Instant::now());
        assert_eq!(buckets.take("flood", 8.0, LIMIT, now), Ok(()));

        for number in 0..2 * PAYERS_MAX {
            buckets.take(&number.to_string(), 1.0, LIMIT, now).unwrap();
        }

        assert!(buckets.payers() <= PAYERS_MAX);
        assert!(buckets.take("flood", 1.0, LIMIT, now).is_err());
    }
}

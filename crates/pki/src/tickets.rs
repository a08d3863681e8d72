//! Tickets with which an agent resumes its TLS session: no certificate is sent or verified, and nothing is signed.
//!
//! Promised: the server keeps nothing for a ticket but the keys that seal them, so tickets survive its restart if
//! the keys do; a ticket is valid for [`TICKET_LIFETIME`] and a key seals new ones for [`KEY_PERIOD`]; the contents
//! of a ticket, including the agent's certificate, are what the server verified in the last full handshake. Early
//! data stays off. Absent: an end of resumption, since a resumed session gets new tickets; and whether the
//! certificate in a ticket is still valid. Whoever serves a resumed session checks its expiry and its key again, as
//! for any other: that is what ends it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use jiff::Timestamp;
use rustls::client::{ClientSessionMemoryCache, Resumption, TicketRequest};
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use rustls::{ClientConfig, ServerConfig};

use crate::{PkiError, Result, random_bytes};

/// The longest that TLS 1.3 allows: an agent gets tickets when it connects, and stays connected for days.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(7 * DAY_SECS);
/// How long a key seals new tickets.
pub const KEY_PERIOD: Duration = Duration::from_secs(DAY_SECS);
/// A key that could not be replaced for this long seals nothing any more.
const KEY_PERIOD_MAX: Duration = Duration::from_secs(2 * DAY_SECS);
const DAY_SECS: u64 = 24 * 3600;
/// One for each day of a ticket's lifetime, and the current one.
const KEYS_MAX: usize = 8;
/// A ticket or key from further in the future was made before a clock was set right. A smaller difference is
/// normal: clocks of several servers differ, and are set back a little.
const AHEAD_MAX: Duration = Duration::from_secs(3600);
/// An attempt consumes a ticket, even one that a crowded server closes.
const TICKETS: u8 = 3;

const FORMAT: u8 = 1;
const ID_BYTES: usize = 8;
const TIME_BYTES: usize = 8;
const KEY_BYTES: usize = 32;
const ENTRY_BYTES: usize = ID_BYTES + TIME_BYTES + KEY_BYTES;

/// The keys that seal tickets, the newest first.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKeys(Vec<TicketKey>);

#[derive(Clone, PartialEq, Eq)]
struct TicketKey {
    id: [u8; ID_BYTES],
    made_at: i64,
    secret: [u8; KEY_BYTES],
}

impl TicketKey {
    fn generate(now: Timestamp) -> Self {
        Self { id: random_bytes(), made_at: now.as_second(), secret: random_bytes() }
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("count", &self.0.len()).finish_non_exhaustive()
    }
}

impl TicketKeys {
    pub fn generate(now: Timestamp) -> Self {
        Self(vec![TicketKey::generate(now)])
    }

    /// With a new key, if the newest is old enough or from far in the future. Drops the oldest if there are too
    /// many: a clock that is wrong for a while must not cost those that are still needed, and each ticket has its
    /// own expiry.
    pub fn rotated_if_due(&self, now: Timestamp) -> Option<Self> {
        let newest = self.0.first()?;
        let age = now.as_second().saturating_sub(newest.made_at);
        if (-seconds(AHEAD_MAX)..seconds(KEY_PERIOD)).contains(&age) {
            return None;
        }
        let older = self.0.iter().take(KEYS_MAX - 1);
        Some(Self(std::iter::once(&TicketKey::generate(now)).chain(older).cloned().collect()))
    }

    /// For storage.
    pub fn to_bytes(&self) -> Vec<u8> {
        let entry = |key: &TicketKey| [&key.id[..], &key.made_at.to_be_bytes(), &key.secret].concat();
        std::iter::once(FORMAT).chain(self.0.iter().flat_map(entry)).collect()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || PkiError::read("the keys of TLS tickets")("they are damaged".into());
        let (&[FORMAT], entries) = bytes.split_first_chunk().ok_or_else(damaged)? else { return Err(damaged()) };
        let entries = entries.chunks(ENTRY_BYTES).map(|entry| {
            let (id, rest) = entry.split_first_chunk()?;
            let (made_at, secret) = rest.split_first_chunk()?;
            Some(TicketKey { id: *id, made_at: i64::from_be_bytes(*made_at), secret: secret.try_into().ok()? })
        });
        let keys: Vec<_> = entries.collect::<Option<_>>().ok_or_else(damaged)?;
        if keys.is_empty() || keys.len() > KEYS_MAX { Err(damaged()) } else { Ok(Self(keys)) }
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).expect("some days fit")
}

/// Seals and opens tickets for the configurations of a server.
pub struct Tickets(std::sync::RwLock<Arc<[Sealing]>>);

struct Sealing {
    id: [u8; ID_BYTES],
    made_at: i64,
    key: RandomizedNonceKey,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl Tickets {
    pub fn new(keys: &TicketKeys) -> Self {
        Self(std::sync::RwLock::new(sealing(keys)))
    }

    /// Replaces the keys.
    pub fn set(&self, keys: &TicketKeys) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = sealing(keys);
    }

    fn keys(&self) -> Arc<[Sealing]> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn seal(&self, plain: &[u8], now: i64) -> Option<Vec<u8>> {
        let keys = self.keys();
        let newest = keys.first().filter(|key| now.saturating_sub(key.made_at) < seconds(KEY_PERIOD_MAX))?;
        let mut sealed = [&now.to_be_bytes(), plain].concat();
        let nonce = newest.key.seal_in_place_append_tag(Aad::from(newest.id), &mut sealed).ok()?;
        Some([&newest.id, &nonce.as_ref()[..], &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now: i64) -> Option<Vec<u8>> {
        let (id, rest) = ticket.split_first_chunk::<ID_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys();
        let key = keys.iter().find(|key| key.id == *id)?;
        let mut opened = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key.key.open_in_place(nonce, Aad::from(*id), &mut opened).ok()?;
        let (made_at, plain) = opened.split_first_chunk::<TIME_BYTES>()?;
        let age = now.checked_sub(i64::from_be_bytes(*made_at))?;
        (-seconds(AHEAD_MAX)..seconds(TICKET_LIFETIME)).contains(&age).then(|| plain.to_vec())
    }
}

fn sealing(keys: &TicketKeys) -> Arc<[Sealing]> {
    let sealing = |key: &TicketKey| Sealing {
        id: key.id,
        made_at: key.made_at,
        key: RandomizedNonceKey::new(&AES_256_GCM, &key.secret).expect("32 bytes are a key of AES-256"),
    };
    keys.0.iter().map(sealing).collect()
}

fn unix_seconds() -> i64 {
    i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX)
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(TICKET_LIFETIME.as_secs()).expect("seven days fit")
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, unix_seconds())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, unix_seconds())
    }
}

/// Gives tickets to clients that ask for them, and accepts them.
pub fn with_tickets(mut config: ServerConfig, tickets: Arc<Tickets>) -> ServerConfig {
    config.ticketer = tickets;
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = usize::from(TICKETS);
    config.max_early_data_size = 0;
    config
}

/// Requests and uses tickets. The configuration must be kept: tickets belong to the certificate and authority that
/// it was made with, and are dropped with it.
pub fn resuming(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(1)));
    config.send_ticket_request = Some(TicketRequest { new_session_count: TICKETS, resumption_count: TICKETS });
    config.enable_early_data = false;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * seconds(KEY_PERIOD)).unwrap()
    }

    #[test]
    fn a_ticket_is_good_for_a_week_and_outlives_a_restart_and_rotations() {
        let mut keys = TicketKeys::generate(at(0));
        let tickets = Tickets::new(&keys);
        let (first, second) = (tickets.seal(b"state", at(0).as_second()), tickets.seal(b"state", at(0).as_second()));
        let first = first.unwrap();
        assert_ne!(Some(&first), second.as_ref());

        for day in 1..=6 {
            keys = keys.rotated_if_due(at(day)).expect("a key a day");
            let restarted = Tickets::new(&TicketKeys::from_bytes(&keys.to_bytes()).unwrap());
            assert_eq!(restarted.open(&first, at(day).as_second()).as_deref(), Some(&b"state"[..]));
            tickets.set(&keys);
            assert!(tickets.open(&first, at(day).as_second()).is_some());
        }

        assert!(tickets.open(&first, at(7).as_second()).is_none(), "its time is over though its key is there");
        assert!(tickets.open(&first, at(-1).as_second()).is_none(), "it is not of a clock that was far ahead");
    }

    #[test]
    fn keys_are_replaced_every_day_and_the_oldest_are_dropped() {
        let mut keys = TicketKeys::generate(at(0));
        assert_eq!(keys.rotated_if_due(at(0) + KEY_PERIOD / 2), None);
        for day in 1..=40 {
            keys = keys.rotated_if_due(at(day)).unwrap();
            assert_eq!(keys.rotated_if_due(at(day)), None);
            assert!(keys.0.len() <= KEYS_MAX);
        }

        let after_a_month_off = keys.rotated_if_due(at(70)).unwrap();
        let clock_was_ahead = keys.rotated_if_due(at(30)).unwrap();

        assert_eq!(after_a_month_off.0.len(), KEYS_MAX);
        assert_eq!(clock_was_ahead.0[0].made_at, at(30).as_second());
        assert!(clock_was_ahead.0.len() <= KEYS_MAX);
    }

    #[test]
    fn a_clock_that_was_wrong_for_a_while_costs_no_tickets() {
        let keys = TicketKeys::generate(at(0));
        let ticket = Tickets::new(&keys).seal(b"state", at(0).as_second()).unwrap();

        let month_ahead = keys.rotated_if_due(at(30)).unwrap();
        let set_right = month_ahead.rotated_if_due(at(1)).expect("the newest is of a time to come");
        let set_back = set_right.rotated_if_due(at(1) - AHEAD_MAX / 2);

        assert!(Tickets::new(&set_right).open(&ticket, at(1).as_second()).is_some());
        assert_eq!(set_back, None, "a small step back is no reason for a new key");
    }

    #[test]
    fn keys_of_any_time_are_read_without_an_overflow() {
        for made_at in [i64::MIN, i64::MAX] {
            let keys = TicketKeys(vec![TicketKey { made_at, ..TicketKey::generate(at(0)) }]);
            assert_eq!(keys.rotated_if_due(at(0)).map(|keys| keys.0.len()), Some(2));
            let _ = Tickets::new(&keys).seal(b"state", at(0).as_second());
        }
    }

    #[test]
    fn a_key_that_was_not_replaced_seals_nothing() {
        let tickets = Tickets::new(&TicketKeys::generate(at(0)));

        assert!(tickets.seal(b"state", at(1).as_second()).is_some());
        assert!(tickets.seal(b"state", at(2).as_second()).is_none());
    }

    #[test]
    fn what_was_not_sealed_here_is_not_opened() {
        let now = at(0).as_second();
        let tickets = Tickets::new(&TicketKeys::generate(at(0)));
        let ticket = tickets.seal(b"state", now).unwrap();

        for byte in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[byte] ^= 1;
            assert!(tickets.open(&changed, now).is_none(), "byte {byte}");
            assert!(tickets.open(&ticket[..byte], now).is_none(), "{byte} bytes");
        }
        assert!(Tickets::new(&TicketKeys::generate(at(0))).open(&ticket, now).is_none());
    }

    #[test]
    fn damaged_keys_are_an_error() {
        let bytes = TicketKeys::generate(at(0)).to_bytes();

        assert!(TicketKeys::from_bytes(&bytes).is_ok());
        for damaged in [&bytes[..0], &bytes[..1], &bytes[..20], &[2], &[&bytes[..], &[0]].concat(), &[9; 400]] {
            assert!(TicketKeys::from_bytes(damaged).is_err(), "{damaged:?}");
        }
        assert!(!format!("{:?}", TicketKeys::generate(at(0))).contains("secret"));
    }
}

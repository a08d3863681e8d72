//! Who may download at the same time, and who is evicted.
//!
//! Promised: unknown clients share [`STRANGERS_MAX`] slots, one address gets [`PER_PEER_MAX`] of them; administrators
//! and addresses of enrolled hosts have [`KNOWN_MAX`] slots of their own. If all slots are taken, a peer that has not
//! read its last chunk is evicted in favour of a new one, the longest waiting first. An evicted slot closes its file
//! at once, whether its peer ever reads again or not.
//! Absent: closing connections, which is up to `connections`.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use parking_lot::Mutex;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Each takes a descriptor and a buffer; a fleet that joins at once waits its turn and asks again.
const STRANGERS_MAX: usize = 32;
/// Beyond those of strangers.
const KNOWN_MAX: usize = 16;
/// Of one address, in each of the two.
const PER_PEER_MAX: usize = 8;
const PIECE_BYTES: usize = 64 * 1024;
/// A peer that leaves a chunk unread for this long is evicted when somebody else wants its slot.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A peer that takes longer for one piece is cut off, whether anybody waits or not.
const PIECE_PATIENCE: Duration = Duration::from_secs(60);

/// Whom a download is for. `peer` is an address as `connections::share_of` tells it; None is one peer, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Downloader {
    pub(super) peer: Option<IpAddr>,
    pub(super) is_known: bool,
}

/// All downloads in progress.
#[derive(Debug, Default)]
pub(super) struct Slots {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: BTreeMap<u64, Arc<Slot>>,
}

#[derive(Debug)]
struct Slot {
    of: Downloader,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The peer has to take what it got, since then. The file is there once it was opened.
    Waiting(Instant, Option<File>),
    /// A piece is being read.
    Reading,
    GaveWay,
}

impl Slot {
    /// Since when its peer keeps the next piece waiting, where that is too long.
    fn slow_since(&self, now: Instant) -> Option<Instant> {
        match *self.state.lock() {
            State::Waiting(since, Some(_)) => (now.saturating_duration_since(since) >= SLOW_AFTER).then_some(since),
            State::Waiting(_, None) | State::Reading | State::GaveWay => None,
        }
    }
}

impl Open {
    fn of<'a>(&'a self, is_wanted: impl Fn(&Downloader) -> bool + 'a) -> impl Iterator<Item = (u64, &'a Arc<Slot>)> {
        self.by_number.iter().map(|(number, slot)| (*number, slot)).filter(move |(_, slot)| is_wanted(&slot.of))
    }

    /// Leaves one slot less of those wanted, if there is a slow one.
    fn evict(&mut self, now: Instant, is_wanted: impl Fn(&Downloader) -> bool) -> Option<()> {
        let slow = self.of(is_wanted).filter_map(|(number, slot)| Some((slot.slow_since(now)?, number)));
        let (_, number) = slow.min()?;
        let slot = self.by_number.remove(&number)?;
        *slot.state.lock() = State::GaveWay;
        Some(())
    }
}

impl Slots {
    /// None if everybody who has a slot makes use of it. Known clients may also use the slots of unknown ones.
    pub(super) fn take(self: &Arc<Self>, of: Downloader, now: Instant) -> Option<Download> {
        let stranger = Downloader { is_known: false, ..of };
        self.take_as(of, now).or_else(|| of.is_known.then(|| self.take_as(stranger, now)).flatten())
    }

    fn take_as(self: &Arc<Self>, of: Downloader, now: Instant) -> Option<Download> {
        let mut open = self.open.lock();
        if open.of(|other| *other == of).count() >= PER_PEER_MAX {
            open.evict(now, |other| *other == of)?;
        }
        let max = if of.is_known { KNOWN_MAX } else { STRANGERS_MAX };
        if open.of(|other| other.is_known == of.is_known).count() >= max {
            open.evict(now, |other| other.is_known == of.is_known)?;
        }
        let number = open.next;
        open.next += 1;
        let slot = Arc::new(Slot { of, state: Mutex::new(State::Waiting(now, None)) });
        open.by_number.insert(number, slot.clone());
        Some(Download { slots: self.clone(), number, slot })
    }
}

/// One download; its slot is free when it is dropped.
#[derive(Debug)]
pub(super) struct Download {
    slots: Arc<Slots>,
    number: u64,
    slot: Arc<Slot>,
}

impl Download {
    /// From now on pieces of this file are read.
    pub(super) fn begin(&self, file: File, now: Instant) {
        *self.slot.state.lock() = State::Waiting(now, Some(file));
    }

    /// The peer has taken what it got: the next piece, none at the end.
    pub(super) async fn piece(&self) -> io::Result<Option<Bytes>> {
        let mut file = self.take_file(Instant::now())?;
        let mut piece = vec![0; PIECE_BYTES];
        let count = file.read(&mut piece).await?;
        piece.truncate(count);
        self.begin(file, Instant::now());
        Ok((count > 0).then(|| Bytes::from(piece)))
    }

    fn take_file(&self, now: Instant) -> io::Result<File> {
        let mut state = self.slot.state.lock();
        match std::mem::replace(&mut *state, State::Reading) {
            State::Waiting(since, Some(file)) if now.saturating_duration_since(since) <= PIECE_PATIENCE => Ok(file),
            State::Waiting(..) | State::Reading | State::GaveWay => {
                *state = State::GaveWay;
                Err(io::Error::new(io::ErrorKind::TimedOut, "the download was too slow"))
            }
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.slots.open.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(last: u8) -> Downloader {
        Downloader { peer: Some(IpAddr::from([192, 0, 2, last])), is_known: false }
    }

    fn known(last: u8) -> Downloader {
        Downloader { is_known: true, ..stranger(last) }
    }

    /// Every slot of strangers, each of an address of its own.
    fn all_taken(slots: &Arc<Slots>, now: Instant) -> Vec<Download> {
        let taken = (0..STRANGERS_MAX).map(|number| slots.take(stranger(u8::try_from(number).unwrap()), now).unwrap());
        taken.inspect(|download| download.begin(file(), now)).collect()
    }

    fn file() -> File {
        File::from_std(tempfile::tempfile().unwrap())
    }

    #[tokio::test]
    async fn one_address_gets_its_share_and_no_more() {
        let (slots, now) = (Arc::<Slots>::default(), Instant::now());
        let held: Vec<_> = (0..PER_PEER_MAX).map(|_| slots.take(stranger(1), now).unwrap()).collect();

        assert!(slots.take(stranger(1), now).is_none());
        assert!(slots.take(stranger(2), now).is_some());
        assert!(slots.take(known(1), now).is_some(), "a known peer has slots of its own");
        drop(held);
        assert!(slots.take(stranger(1), now).is_some());
    }

    #[tokio::test]
    async fn the_longest_waiting_peer_gives_way_and_a_quick_one_never_does() {
        let (slots, now) = (Arc::<Slots>::default(), Instant::now());
        let held = all_taken(&slots, now);
        let later = now + SLOW_AFTER;
        held.iter().skip(2).for_each(|quick| quick.begin(file(), later));
        held[0].begin(file(), now + Duration::from_millis(1));

        assert!(slots.take(stranger(100), now).is_none(), "nobody is slow yet");
        let _new = slots.take(stranger(100), later + Duration::from_millis(1)).unwrap();
        assert!(held[1].take_file(later).is_err());
        assert!(held[0].take_file(later).is_ok());
        assert!(held[2].take_file(later).is_ok());
    }

    #[tokio::test]
    async fn strangers_take_no_slot_of_known_peers() {
        let (slots, now) = (Arc::<Slots>::default(), Instant::now());
        let held = all_taken(&slots, now);

        let known: Vec<_> =
            (0..KNOWN_MAX).map(|number| slots.take(known(u8::try_from(number).unwrap()), now)).collect();

        assert!(known.iter().all(Option::is_some));
        assert!(slots.take(stranger(200), now).is_none());
        drop(held);
        assert!(slots.take(stranger(200), now).is_some());
    }

    #[tokio::test]
    async fn a_piece_that_is_not_taken_in_time_is_the_last() {
        let (slots, now) = (Arc::<Slots>::default(), Instant::now());
        let download = slots.take(stranger(1), now).unwrap();
        download.begin(file(), now);

        assert!(download.take_file(now + PIECE_PATIENCE).is_ok());
        download.begin(file(), now);
        assert!(download.take_file(now + PIECE_PATIENCE + Duration::from_millis(1)).is_err());
    }
}

//! Agents that the server has not welcomed yet, and limits per key and per address.
//!
//! Promised: each connection sends the server a bounded number of greetings at a time, at the pace at which it
//! handles them, and the others wait for their turn; one agent key, even a revoked one, takes or waits for a few
//! turns at most, so it keeps nobody out. The key counts and not the agent's name: a replaced key must not keep the
//! new one out. Absent: whether the server knows the agent.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_wire::OpeningPace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Agents of one connection that the server has not welcomed yet; the others wait for their turn.
const GREETINGS_MAX: usize = 64;
/// Per key: an agent may come back while its last attempt is still there.
const GREETINGS_OF_KEY_MAX: usize = 2;

/// The greetings of one connection to the server.
#[derive(Clone, Debug)]
pub(crate) struct Greetings {
    turns: Arc<Semaphore>,
    of_keys: KeyedLimit<String>,
    pace: Arc<Mutex<OpeningPace>>,
}

/// A greeting in progress; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Greeting {
    _turn: OwnedSemaphorePermit,
    _of_key: KeyedPermit<String>,
}

impl Default for Greetings {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(GREETINGS_MAX)),
            of_keys: KeyedLimit::new(GREETINGS_OF_KEY_MAX),
            pace: Arc::new(Mutex::new(OpeningPace::new(Instant::now().into_std()))),
        }
    }
}

impl Greetings {
    /// Waits for a turn, for the key of this fingerprint. None at once if it has too many already.
    pub(crate) async fn begin(&self, key: &str) -> Option<Greeting> {
        let of_key = self.of_keys.take(key.to_owned())?;
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        while let Err(wait) = self.at_pace() {
            tokio::time::sleep(wait).await;
        }
        Some(Greeting { _turn: turn, _of_key: of_key })
    }

    fn at_pace(&self) -> Result<(), Duration> {
        self.pace.lock().take(Instant::now().into_std())
    }

    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        GREETINGS_MAX - self.turns.available_permits()
    }
}

/// So many at the same time for each key.
#[derive(Clone, Debug)]
pub(crate) struct KeyedLimit<K: Eq + Hash> {
    max: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct KeyedPermit<K: Eq + Hash> {
    key: K,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Eq + Hash + Clone> KeyedLimit<K> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: Arc::default() }
    }

    pub(crate) fn take(&self, key: K) -> Option<KeyedPermit<K>> {
        let mut taken = self.taken.lock();
        let count = taken.entry(key.clone()).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(KeyedPermit { key, taken: self.taken.clone() })
    }
}

impl<K: Eq + Hash> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proctor_wire::OPENINGS_AT_ONCE;

    use super::*;

    fn key(number: usize) -> String {
        format!("key-{number}")
    }

    #[tokio::test]
    async fn one_key_takes_a_few_turns_and_the_others_have_the_rest() {
        let greetings = Greetings::default();
        let mut of_one: Vec<_> = (0..100).filter_map(|_| greetings.begin(&key(0)).now_or_never().flatten()).collect();

        assert_eq!(of_one.len(), GREETINGS_OF_KEY_MAX);
        let rest = 1..=GREETINGS_MAX - GREETINGS_OF_KEY_MAX;
        let others: Vec<_> = rest.map(|number| greetings.begin(&key(number)).now_or_never()).collect();
        assert!(others.iter().all(|turn| turn.as_ref().is_some_and(Option::is_some)));
        assert!(greetings.begin(&key(999)).now_or_never().is_none(), "it waits");
        of_one.pop();
        let next = greetings.begin(&key(999)).now_or_never().flatten();
        assert!(next.is_some());
        drop((next, of_one, others));
        assert!(greetings.of_keys.taken.lock().is_empty(), "nothing is kept of who is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_gets_no_more_greetings_than_it_takes() {
        let (greetings, begun) = (Greetings::default(), Instant::now());
        let mut servers = OpeningPace::new(begun.into_std());

        for number in 0..OPENINGS_AT_ONCE as usize + 1000 {
            greetings.begin(&key(number)).await.expect("when it is its turn");
            assert_eq!(servers.take(Instant::now().into_std()), Ok(()));
        }

        assert!(begun.elapsed().as_secs() >= 4, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn an_agent_that_waits_for_its_turn_counts_too() {
        let greetings = Greetings::default();
        let _all: Vec<_> =
            (1..=GREETINGS_MAX).filter_map(|number| greetings.begin(&key(number)).now_or_never().flatten()).collect();
        let late = key(0);
        let (mut first, mut second) = (Box::pin(greetings.begin(&late)), Box::pin(greetings.begin(&late)));

        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        assert!(greetings.begin(&late).now_or_never().expect("at once").is_none());
        drop(first);
        assert!(greetings.begin(&late).now_or_never().is_none(), "one may wait again");
    }
}

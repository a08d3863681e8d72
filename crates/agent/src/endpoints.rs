//! Where the agent may connect: the server, or any number of relays of its cloud area.
//!
//! Promised: a round tries each endpoint once, in random order, with the most recently lost one last; the next one is
//! tried at once, and only a round without a session is followed by a wait. After a long outage the waits are long
//! and random enough that the agents of a whole area do not reconnect at the same moment. Reads no clock and opens no
//! socket.
//! Absent: what a session is (see `link`).

use std::collections::VecDeque;
use std::time::Duration;

use proctor_wire::{ENDPOINTS_MAX, RETURN_SPREAD_MAX};

/// Agents of a relay that is gone reach the others over this time, not all at once.
const FAIL_OVER_SPREAD: Duration = Duration::from_secs(2);
/// The share of an outage by which the return is spread.
const RETURN_SHARE: u32 = 4;

#[derive(Debug)]
pub(crate) struct Endpoints {
    all: Vec<String>,
    /// What is left of the current round.
    round: VecDeque<String>,
}

impl Endpoints {
    /// Of a text that [`parse_links`] accepts.
    pub(crate) fn new(text: &str) -> Self {
        let all = text.split(',').map(|one| one.trim().to_owned()).collect();
        Self { all, round: VecDeque::new() }
    }

    pub(crate) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The next one to try; starts a round if none is in progress.
    pub(crate) fn next(&mut self) -> String {
        if self.round.is_empty() {
            self.begin_round(None);
        }
        self.round.pop_front().unwrap_or_default()
    }

    /// Whether there is one left to try before a wait.
    pub(crate) fn has_more(&self) -> bool {
        !self.round.is_empty()
    }

    /// The session with this one is over: all are tried again, this one last.
    pub(crate) fn lost(&mut self, endpoint: &str) {
        self.begin_round(Some(endpoint));
    }

    fn begin_round(&mut self, last: Option<&str>) {
        let mut all = self.all.clone();
        shuffle(&mut all);
        // A stable sort: the others keep their random order.
        all.sort_by_key(|endpoint| Some(endpoint.as_str()) == last);
        self.round = all.into();
    }

    /// Before the first attempt after a session that was lost.
    pub(crate) fn fail_over_wait(&self) -> Duration {
        FAIL_OVER_SPREAD.mul_f64(chance())
    }
}

/// A wait between rounds, after so long without a session.
pub(crate) fn return_wait(outage: Duration) -> Duration {
    (outage / RETURN_SHARE).min(RETURN_SPREAD_MAX).mul_f64(chance())
}

/// 0 to 1.
fn chance() -> f64 {
    f64::from(u32::from_be_bytes(proctor_pki::random_bytes::<4>())) / f64::from(u32::MAX)
}

fn shuffle(all: &mut [String]) {
    for last in (1..all.len()).rev() {
        let number = u64::from_be_bytes(proctor_pki::random_bytes::<8>());
        let other = usize::try_from(number % (last as u64 + 1)).unwrap_or(0);
        all.swap(last, other);
    }
}

/// The addresses of links as users write them: one `HOST:PORT`, or several separated by commas.
pub fn parse_links(text: &str) -> Result<String, String> {
    let links: Vec<&str> = text.split(',').map(str::trim).collect();
    if links.len() > ENDPOINTS_MAX as usize {
        return Err(format!("names {} addresses, at most {ENDPOINTS_MAX} are tried", links.len()));
    }
    let links = links.into_iter().map(crate::parse_link).collect::<Result<Vec<_>, _>>()?;
    for (index, link) in links.iter().enumerate() {
        if links[..index].contains(link) {
            return Err(format!("names {link} twice"));
        }
    }
    Ok(links.join(","))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_round_tries_each_once_and_the_lost_one_last() {
        let mut endpoints = Endpoints::new("a:1,b:1, c:1");
        let all = HashSet::from(["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()]);

        for _ in 0..20 {
            let round: Vec<_> = (0..3).map(|_| endpoints.next()).collect();
            assert!(!endpoints.has_more());
            assert_eq!(round.into_iter().collect::<HashSet<_>>(), all);
            endpoints.lost("b:1");
            let again: Vec<_> = (0..3).map(|_| endpoints.next()).collect();
            assert_eq!(again[2], "b:1");
        }
    }

    #[test]
    fn agents_do_not_all_begin_with_the_same_one() {
        let first = (0..64).map(|_| Endpoints::new("a:1,b:1").next()).collect::<HashSet<_>>();

        assert_eq!(first.len(), 2);
    }

    #[test]
    fn after_a_short_outage_all_are_back_soon_and_after_a_long_one_they_spread() {
        let waits = |outage| (0..400).map(|_| return_wait(Duration::from_secs(outage))).collect::<Vec<_>>();

        assert!(waits(4).into_iter().all(|wait| wait <= Duration::from_secs(1)));
        let long = waits(300);
        assert!(long.iter().all(|wait| *wait <= RETURN_SPREAD_MAX));
        assert!(long.iter().any(|wait| *wait < Duration::from_secs(15)));
        assert!(long.iter().any(|wait| *wait > Duration::from_secs(45)));
    }

    #[test]
    fn a_list_of_addresses_is_checked_one_by_one() {
        assert_eq!(parse_links("a:1, b:2"), Ok("a:1,b:2".to_owned()));
        assert_eq!(parse_links("a:1"), Ok("a:1".to_owned()));
        assert!(parse_links("a:1,b").unwrap_err().starts_with("has no port"));
        assert!(parse_links("a:1,").is_err());
        assert_eq!(parse_links("a:1,a:1"), Err("names a:1 twice".to_owned()));
        let many: Vec<String> = (1..=17).map(|port| format!("a:{port}")).collect();
        assert_eq!(parse_links(&many.join(",")), Err("names 17 addresses, at most 16 are tried".to_owned()));
    }
}

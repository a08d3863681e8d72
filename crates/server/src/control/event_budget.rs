//! Rate limit on the events that one host may add to the store.
//!
//! Promised: an agent may store [`BURST_BYTES`] of events at once and [`SUSTAINED_BYTES_PER_SEC`] from then on,
//! however often it connects; the burst covers the whole spool of an agent that was away for long (10,000 events of a
//! few kilobytes). Anything beyond is dropped and counted, and reported once per [`TELL_PERIOD`]. The last
//! [`PRESENCE_BYTES`] are for the server's own events about the agent's presence, which a noisy agent must not crowd
//! out.
//! Absent: memory across a restart of the server, where every agent starts afresh; the acknowledgement of what was
//! dropped (see `events`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, Event};

const BURST_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// 88 MB in a day; one or two events in a second.
const SUSTAINED_BYTES_PER_SEC: f64 = 1024.0;
/// A few thousand connects and disconnects.
const PRESENCE_BYTES: f64 = 2.0 * 1024.0 * 1024.0;
/// The columns and index entries of a row, besides the texts.
const ROW_BYTES: usize = 256;
const TELL_PERIOD: Duration = Duration::from_secs(600);

/// What agents have left.
#[derive(Debug, Default)]
pub(super) struct EventBudgets(Mutex<HashMap<AgentId, Account>>);

/// One that is full and has nothing to tell is forgotten, so there are as many as agents that were heard lately.
#[derive(Debug)]
struct Account {
    left: f64,
    at: Instant,
    dropped: u64,
    told_at: Option<Instant>,
}

/// How many of the events that arrived may be stored, from the first on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Admitted {
    pub(super) count: usize,
    bytes: f64,
    dropped: u64,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self { left: BURST_BYTES, at: now, dropped: 0, told_at: None }
    }

    fn refill(&mut self, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * SUSTAINED_BYTES_PER_SEC;
        self.left = (self.left + gained).min(BURST_BYTES);
        self.at = now;
    }

    /// Whether a loss may be reported now.
    fn is_due(&self, now: Instant) -> bool {
        self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_PERIOD)
    }
}

impl EventBudgets {
    /// Takes the events of an agent off its account, as far as it reaches.
    pub(super) fn admit(&self, agent: &AgentId, events: &[Event], now: Instant) -> Admitted {
        self.with(agent, now, |account| {
            let mut admitted = Admitted { count: 0, bytes: 0.0, dropped: 0 };
            for event in events {
                let bytes = admitted.bytes + stored_bytes(event);
                if account.left - bytes < PRESENCE_BYTES {
                    break;
                }
                (admitted.count, admitted.bytes) = (admitted.count + 1, bytes);
            }
            admitted.dropped = (events.len() - admitted.count) as u64;
            account.left -= admitted.bytes;
            account.dropped += admitted.dropped;
            admitted
        })
    }

    /// The store did not take what was admitted: it comes again.
    pub(super) fn give_back(&self, agent: &AgentId, admitted: Admitted, now: Instant) {
        self.with(agent, now, |account| {
            account.left = (account.left + admitted.bytes).min(BURST_BYTES);
            account.dropped = account.dropped.saturating_sub(admitted.dropped);
        });
    }

    /// Whether an event of the server about the agent may be stored.
    pub(super) fn admit_presence(&self, agent: &AgentId, event: &Event, now: Instant) -> bool {
        self.with(agent, now, |account| {
            let left = account.left - stored_bytes(event);
            if left < 0.0 {
                account.dropped += 1;
                return false;
            }
            account.left = left;
            true
        })
    }

    /// How many events of which agents were dropped and are to be reported now.
    pub(super) fn take_dropped(&self, now: Instant) -> Vec<(AgentId, u64)> {
        let mut told = Vec::new();
        self.0.lock().retain(|agent, account| {
            account.refill(now);
            if !account.is_due(now) {
                return true;
            }
            if account.dropped > 0 {
                told.push((agent.clone(), std::mem::take(&mut account.dropped)));
                account.told_at = Some(now);
                return true;
            }
            account.left < BURST_BYTES
        });
        told
    }

    /// They could not be reported.
    pub(super) fn put_back_dropped(&self, dropped: Vec<(AgentId, u64)>, now: Instant) {
        for (agent, count) in dropped {
            self.with(&agent, now, |account| account.dropped += count);
        }
    }

    fn with<T>(&self, agent: &AgentId, now: Instant, act: impl FnOnce(&mut Account) -> T) -> T {
        let mut accounts = self.0.lock();
        let account = accounts.entry(agent.clone()).or_insert_with(|| Account::new(now));
        account.refill(now);
        act(account)
    }
}

/// What the event takes in the store: its JSON, and the key of its process in the row and two indexes.
fn stored_bytes(event: &Event) -> f64 {
    let json = serde_json::to_vec(event).map_or(0, |json| json.len());
    let key = event.process.as_ref().map_or(0, |key| key.namespace.as_str().len() + key.name.as_str().len());
    (json + 3 * key + ROW_BYTES) as f64
}

#[cfg(test)]
mod tests {
    use proctor_model::EventKind;

    use super::*;

    fn agent(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    fn event(content_bytes: usize) -> Event {
        Event {
            sequence: 1,
            at: 1,
            process: Some("web/a".parse().unwrap()),
            proc_name: "nginx".into(),
            report_id: None,
            kind: EventKind::Exited,
            content: proctor_model::Message::foreign("x".repeat(content_bytes)),
            details: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn a_whole_spool_is_admitted_and_a_flood_is_not_however_it_goes_on() {
        let (budgets, now, loud) = (EventBudgets::default(), Instant::now(), agent("loud"));
        let spool = vec![event(4_096); 10_000];

        let first = budgets.admit(&loud, &spool, now);
        let second = budgets.admit(&loud, &spool, now);
        let third = budgets.admit(&loud, &spool, now);
        let later = budgets.admit(&loud, &spool, now + Duration::from_secs(3600));

        assert_eq!((first.count, first.dropped), (10_000, 0));
        assert!(second.count < 5_000 && second.dropped == (10_000 - second.count) as u64, "{second:?}");
        assert_eq!(third.count, 0);
        assert!((700..900).contains(&later.count), "{later:?}");
        assert_eq!(budgets.admit(&agent("other"), &spool, now).count, 10_000);
    }

    #[test]
    fn what_the_store_did_not_take_costs_nothing() {
        let (budgets, now, away) = (EventBudgets::default(), Instant::now(), agent("away"));
        let spool = vec![event(4_096); 10_000];

        for _ in 0..3 {
            let admitted = budgets.admit(&away, &spool, now);
            assert_eq!(admitted.count, 10_000);
            budgets.give_back(&away, admitted, now);
        }

        assert!(budgets.take_dropped(now).is_empty());
        assert!(budgets.0.lock().is_empty(), "a full account is forgotten");
    }

    #[test]
    fn a_loud_agent_still_tells_its_presence_and_a_flapping_one_no_longer() {
        let (budgets, now, loud) = (EventBudgets::default(), Instant::now(), agent("loud"));
        budgets.admit(&loud, &vec![event(4_096); 20_000], now);

        let told = (0..100_000).take_while(|_| budgets.admit_presence(&loud, &event(50), now)).count();

        assert!((2_000..10_000).contains(&told), "{told}");
    }

    #[test]
    fn what_was_dropped_is_told_once_in_a_period_with_its_count() {
        let (budgets, now, loud) = (EventBudgets::default(), Instant::now(), agent("loud"));
        let flood = |count| budgets.admit(&loud, &vec![event(0); count], now).dropped;
        budgets.admit(&loud, &vec![event(4_096); 20_000], now);
        budgets.take_dropped(now);

        let dropped = flood(7_000) + flood(30);
        let soon = budgets.take_dropped(now + TELL_PERIOD / 2);
        let due = budgets.take_dropped(now + TELL_PERIOD);
        budgets.put_back_dropped(due.clone(), now + TELL_PERIOD);
        let again = budgets.take_dropped(now + 2 * TELL_PERIOD);

        assert!(soon.is_empty());
        assert_eq!(due, [(loud.clone(), dropped)]);
        assert_eq!(again, due, "what could not be told is told later");
    }
}

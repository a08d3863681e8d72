//! Events on their way to the server: numbered, kept until the server has them, bounded.
//!
//! Promised: numbers increase and are never reused, even after a power loss or the loss of the whole ledger; events
//! are sent in the order of their numbers, which the server relies on; beyond [`SPOOLED_MAX`] the oldest are dropped
//! and counted.
//! Absent: clocks, the ledger and the link. The driver writes what [`EventSpool::push`] returns and sends what
//! [`EventSpool::unsent`] returns.

use std::collections::{BTreeMap, VecDeque};

use proctor_model::{Event, EventKind, Message, ProcessKey, Spec, messages};

use crate::ledger::LedgerState;

/// Days of a quiet host, an hour of a very unhappy one; about 5 MB.
pub(crate) const SPOOLED_MAX: usize = 10_000;
/// The detail of an `events_dropped` event that gives the number.
pub(crate) const COUNT: &str = "count";
/// One message to the server stays far below the largest frame.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// More numbers than can be issued between two syncs of the ledger.
const UNSYNCED_MAX: u64 = 100_000;

/// An event before it has a number and a time.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    kind: EventKind,
    content: Message,
    process: Option<ProcessKey>,
    proc_name: String,
    report_id: Option<i64>,
    details: BTreeMap<String, String>,
}

impl Draft {
    /// `content` is a sentence for display.
    pub(crate) fn new(kind: EventKind, content: Message) -> Self {
        Self { kind, content, process: None, proc_name: String::new(), report_id: None, details: BTreeMap::new() }
    }

    pub(crate) fn of(mut self, key: &ProcessKey, spec: &Spec) -> Self {
        self.process = Some(key.clone());
        self.proc_name = spec.identity.proc_name.as_str().to_owned();
        self.report_id = spec.report_id;
        self
    }

    pub(crate) fn detail(mut self, name: &str, value: impl ToString) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }
}

/// Owned by the driver.
#[derive(Debug)]
pub(crate) struct EventSpool {
    /// In the order of their numbers.
    waiting: VecDeque<Event>,
    /// The last one that the present connection has carried.
    sent: u64,
    next: u64,
    dropped: u64,
}

impl EventSpool {
    /// Takes over the events known to the ledger. After a power loss the ledger may have forgotten numbers that the
    /// server has seen, and a new ledger knows none at all: in a new boot the numbers continue at the current
    /// millisecond, which no earlier run has reached.
    pub(crate) fn new(memory: &mut LedgerState, same_boot: bool, now_ms: i64) -> Self {
        let floor = if same_boot {
            memory.next_event
        } else {
            (memory.next_event + UNSYNCED_MAX).max(u64::try_from(now_ms).unwrap_or(0))
        };
        let waiting: VecDeque<Event> = std::mem::take(&mut memory.events).into();
        let after_last = waiting.back().map_or(1, |event| event.sequence.saturating_add(1));
        Self { waiting, sent: 0, next: floor.max(after_last), dropped: memory.events_dropped }
    }

    /// Numbers the event and keeps it. The driver puts the returned copy into its batch.
    #[must_use]
    pub(crate) fn push(&mut self, draft: Draft, now_ms: i64) -> Event {
        let Draft { kind, content, process, proc_name, report_id, details } = draft;
        let sequence = self.next;
        let event = Event { sequence, at: now_ms, process, proc_name, report_id, kind, content, details }.fitted();
        self.next = self.next.saturating_add(1);
        self.waiting.push_back(event.clone());
        if self.waiting.len() > SPOOLED_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        event
    }

    /// An event that reports how many were dropped, if any: for a new connection.
    #[must_use]
    pub(crate) fn tell_dropped(&mut self, now_ms: i64) -> Option<Event> {
        if self.dropped == 0 {
            return None;
        }
        let count = std::mem::take(&mut self.dropped);
        let content = messages::events_dropped_offline(count);
        Some(self.push(Draft::new(EventKind::EventsDropped, content).detail(COUNT, count), now_ms))
    }

    /// A new connection: all that the server has not seen is sent again.
    pub(crate) fn connected(&mut self) {
        self.sent = 0;
    }

    /// The oldest that the present connection has not carried; at most `max`, and no more than fit
    /// into one message. Empty when there is nothing to send.
    pub(crate) fn unsent(&self, max: usize) -> Vec<Event> {
        let first = self.waiting.partition_point(|event| event.sequence <= self.sent);
        let mut bytes = 0;
        let fits = |event: &&Event| {
            let is_first = bytes == 0;
            bytes += event.weight();
            is_first || bytes <= MESSAGE_BYTES_MAX
        };
        self.waiting.range(first..).take(max).take_while(fits).cloned().collect()
    }

    /// The last events that the server has not seen, oldest first, and how many there are of them in all.
    pub(crate) fn newest(&self, max: usize) -> (Vec<Event>, usize) {
        let skipped = self.waiting.len().saturating_sub(max);
        (self.waiting.range(skipped..).cloned().collect(), self.waiting.len())
    }

    /// Holds no more memory than it needs.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.waiting.back().is_some_and(|event| event.sequence > self.sent)
    }

    /// The present connection has taken everything up to this one.
    pub(crate) fn sent(&mut self, up_to: u64) {
        self.sent = self.sent.max(up_to);
    }

    /// The server has everything up to this one; the driver tells the ledger (`events_seen`).
    pub(crate) fn seen(&mut self, up_to: u64) {
        while self.waiting.front().is_some_and(|event| event.sequence <= up_to) {
            self.waiting.pop_front();
        }
        if up_to >= self.next {
            tracing::warn!(up_to, next = self.next, "server has newer events than this agent's ledger");
            self.next = up_to.saturating_add(1);
        }
    }

    /// Dropped events that no event has reported yet.
    #[cfg(test)]
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool() -> EventSpool {
        EventSpool::new(&mut LedgerState::default(), true, 0)
    }

    fn push(spool: &mut EventSpool, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| spool.push(Draft::new(EventKind::Started, Message::foreign("it runs")), 5).sequence)
            .collect()
    }

    fn unsent(spool: &EventSpool, max: usize) -> Vec<u64> {
        spool.unsent(max).iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn numbers_begin_with_1_and_grow() {
        assert_eq!(push(&mut spool(), 3), [1, 2, 3]);
    }

    #[test]
    fn numbers_go_on_after_a_restart_even_when_the_server_has_seen_everything() {
        let mut memory = LedgerState { next_event: 8, ..LedgerState::default() };

        assert_eq!(push(&mut EventSpool::new(&mut memory, true, 1_000_000), 2), [8, 9]);
    }

    #[test]
    fn in_a_new_boot_or_with_a_new_ledger_numbers_go_on_where_none_has_been() {
        let first = |next_event, now_ms| {
            push(&mut EventSpool::new(&mut LedgerState { next_event, ..LedgerState::default() }, false, now_ms), 1)[0]
        };

        assert_eq!(first(0, 1_700_000_000_000), 1_700_000_000_000);
        assert_eq!(first(8, 1_700_000_000_000), 1_700_000_000_000);
        assert_eq!(first(1_700_000_000_000, 5), 1_700_000_000_000 + UNSYNCED_MAX, "the clock went back");
    }

    #[test]
    fn a_connection_carries_each_event_once_and_the_next_one_all_that_was_not_seen() {
        let mut spool = spool();
        push(&mut spool, 5);

        assert_eq!(unsent(&spool, 2), [1, 2]);
        spool.sent(2);
        assert_eq!(unsent(&spool, 9), [3, 4, 5]);
        spool.sent(5);
        spool.seen(1);
        assert!(!spool.has_unsent() && unsent(&spool, 9).is_empty());
        spool.connected();

        assert!(spool.has_unsent());
        assert_eq!(unsent(&spool, 9), [2, 3, 4, 5]);
    }

    #[test]
    fn one_message_holds_at_least_one_event_and_not_too_many_bytes() {
        let mut spool = spool();
        for _ in 0..300 {
            let draft = Draft::new(EventKind::Exited, Message::foreign("x".repeat(10_000)))
                .detail("ranking", "x".repeat(15_000));
            let _ = spool.push(draft, 1);
        }

        let message = spool.unsent(256);

        let bytes: usize = message.iter().map(Event::weight).sum();
        assert!(message.len() > 10 && bytes <= MESSAGE_BYTES_MAX, "{} events, {bytes} bytes", message.len());
    }

    #[test]
    fn beyond_the_bound_the_oldest_give_way_and_are_told_once() {
        let mut spool = spool();
        push(&mut spool, SPOOLED_MAX + 7);
        let (oldest, dropped) = (unsent(&spool, 1), spool.dropped());

        let told = spool.tell_dropped(9).unwrap();

        assert_eq!((oldest, dropped), (vec![8], 7));
        assert_eq!((told.kind, told.details[COUNT].as_str()), (EventKind::EventsDropped, "7"));
        assert_eq!(spool.dropped(), 1, "the event that tells needed room as well");
        assert_eq!(spool.waiting.len(), SPOOLED_MAX);
    }

    #[test]
    fn a_server_that_knows_more_raises_the_numbers() {
        let mut spool = spool();
        push(&mut spool, 2);

        spool.seen(50);

        assert_eq!((push(&mut spool, 1), unsent(&spool, 9)), (vec![51], vec![51]));
    }
}

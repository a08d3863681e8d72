//! Outgoing outcomes, events and reports, over a link that may be down or slow.
//!
//! Promised: outcomes are kept until they are acknowledged and resent over every new link, and wait if the current
//! one has no room; none overtakes another, because each says whether its process is managed, and the last one
//! counts. Events go in the order of their numbers, each once per link. Observations may be dropped: the next report
//! brings newer ones. Nothing here waits.
//! Absent: the ledger; the driver writes before it sends.

use std::collections::{BTreeMap, HashSet, VecDeque};

use proctor_model::{OperationId, Outcome};
use proctor_wire::FromAgent;
use tokio::sync::mpsc;

use super::notices::Refusals;
use super::reports::Reports;
use crate::link::LinkOutbox;
use crate::spool::EventSpool;

/// Events in one message.
const EVENTS_MAX: usize = 500;

#[derive(Debug)]
pub(super) struct Outbox {
    /// The present session's, if there is one.
    link: Option<LinkOutbox>,
    /// Those that the server has not acknowledged.
    outcomes: BTreeMap<OperationId, NumberedOutcome>,
    /// How many there were.
    numbered: u64,
    /// Those of them that the link had no room for, in their order.
    waiting: VecDeque<OperationId>,
    pub(super) events: EventSpool,
    pub(super) reports: Reports,
    /// What the link refused, logged from time to time.
    pub(super) refusals: Refusals,
}

#[derive(Debug)]
struct NumberedOutcome {
    /// Rises from outcome to outcome.
    number: u64,
    outcome: Outcome,
}

impl Outbox {
    pub(super) fn new(events: EventSpool) -> Self {
        let (outcomes, waiting) = (BTreeMap::new(), VecDeque::new());
        Self {
            link: None,
            outcomes,
            numbered: 0,
            waiting,
            events,
            reports: Reports::default(),
            refusals: Refusals::default(),
        }
    }

    /// Outcomes of an agent before this one, to be sent when there is a link.
    pub(super) fn restore(&mut self, outcomes: impl IntoIterator<Item = (OperationId, Outcome)>) {
        for (operation, outcome) in outcomes {
            self.keep(operation, outcome);
        }
    }

    fn keep(&mut self, operation: OperationId, outcome: Outcome) {
        self.numbered += 1;
        self.outcomes.insert(operation, NumberedOutcome { number: self.numbered, outcome });
    }

    /// A new session: everything that the server may not have is sent again.
    pub(super) fn connect(&mut self, link: LinkOutbox) {
        self.link = Some(link);
        self.reports.forget_all();
        self.events.connected();
        self.send_from(0);
    }

    pub(super) fn disconnect(&mut self) {
        self.link = None;
        self.waiting.clear();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Where answers go.
    pub(super) fn link(&self) -> Option<&mpsc::Sender<FromAgent>> {
        self.link.as_ref().map(|link| &link.reports)
    }

    /// Without a session nothing is lost: what counts is sent again when the next one opens.
    pub(super) fn send(&self, message: FromAgent) {
        if let Some(link) = &self.link {
            let _ = link.try_send(message);
        }
    }

    /// Keeps an outcome until it is acknowledged, and sends it after those that wait.
    pub(super) fn put(&mut self, operation: OperationId, outcome: Outcome) {
        self.keep(operation, outcome);
        if self.is_connected() {
            self.waiting.push_back(operation);
            self.send_waiting();
        }
    }

    /// Sends those of these outcomes again that are not acknowledged, with all that came after them.
    pub(super) fn send_again(&mut self, operations: &HashSet<OperationId>) {
        let kept = operations.iter().filter_map(|operation| self.outcomes.get(operation));
        if let Some(first) = kept.map(|kept| kept.number).min() {
            self.send_from(first);
        }
    }

    /// Sends what is not acknowledged, from that number on.
    fn send_from(&mut self, first: u64) {
        if !self.is_connected() {
            return;
        }
        let waiting: HashSet<OperationId> = self.waiting.drain(..).collect();
        let is_sent =
            |(operation, kept): &(&OperationId, &NumberedOutcome)| kept.number >= first || waiting.contains(*operation);
        let sent = self.outcomes.iter().filter(is_sent).map(|(operation, kept)| (kept.number, *operation));
        let mut sent: Vec<(u64, OperationId)> = sent.collect();
        sent.sort_unstable();
        self.waiting = sent.into_iter().map(|(_, operation)| operation).collect();
        self.send_waiting();
    }

    /// The outcome, if it is not acknowledged.
    pub(super) fn outcome(&self, operation: &OperationId) -> Option<&Outcome> {
        self.outcomes.get(operation).map(|kept| &kept.outcome)
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.outcomes.len()
    }

    pub(super) fn acknowledged(&mut self, operations: &[OperationId]) {
        for operation in operations {
            self.outcomes.remove(operation);
        }
    }

    /// Whether outcomes wait for a slow link.
    pub(super) fn is_held_up(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn send_waiting(&mut self) {
        let Some(link) = &self.link else { return };
        while let Some(operation) = self.waiting.front().copied() {
            if let Some(NumberedOutcome { outcome, .. }) = self.outcomes.get(&operation)
                && link.try_send(FromAgent::Outcome { operation, outcome: outcome.clone() }).is_err()
            {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// After the ledger has them: what the current session has not carried yet.
    pub(super) fn send_events(&mut self) {
        while let Some(link) = &self.link
            && self.events.has_unsent()
        {
            let events = self.events.unsent(EVENTS_MAX);
            let Some(last) = events.last().map(|event| event.sequence) else { return };
            if link.try_send(FromAgent::Events { events }).is_err() {
                return;
            }
            self.events.sent(last);
        }
    }

    /// Whether there is a session that has not carried everything.
    pub(super) fn has_unreported(&self) -> bool {
        self.is_connected() && (self.reports.has_changes() || self.events.has_unsent())
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::{EventKind, Message, TaskId};

    use super::*;
    use crate::ledger::LedgerState;
    use crate::spool::Draft;

    fn outbox() -> Outbox {
        Outbox::new(EventSpool::new(&mut LedgerState::default(), true, 0))
    }

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index)
    }

    fn with_room(room: usize) -> (LinkOutbox, mpsc::Receiver<FromAgent>) {
        let ((control, _), (reports, heard)) = (mpsc::channel(1), mpsc::channel(room));
        (LinkOutbox { control, reports }, heard)
    }

    fn heard(link: &mut mpsc::Receiver<FromAgent>) -> Vec<FromAgent> {
        std::iter::from_fn(|| link.try_recv().ok()).collect()
    }

    fn outcomes(heard: Vec<FromAgent>) -> Vec<OperationId> {
        let of = |message| if let FromAgent::Outcome { operation, .. } = message { Some(operation) } else { None };
        heard.into_iter().filter_map(of).collect()
    }

    #[test]
    fn an_outcome_is_sent_over_every_link_until_it_is_acknowledged() {
        let mut outbox = outbox();
        outbox.put(operation(0), Outcome::success(true));
        let (link, mut first) = with_room(8);
        outbox.connect(link);
        outbox.put(operation(1), Outcome::success(true));
        assert_eq!(outcomes(heard(&mut first)), [operation(0), operation(1)]);

        outbox.acknowledged(&[operation(0)]);
        outbox.disconnect();
        let (link, mut second) = with_room(8);
        outbox.connect(link);

        assert_eq!(outcomes(heard(&mut second)), [operation(1)]);
        assert_eq!((outbox.outcome(&operation(0)), outbox.unacknowledged()), (None, 1));
    }

    #[test]
    fn outcomes_wait_for_a_slow_link_and_beats_do_not() {
        let mut outbox = outbox();
        let (link, mut slow) = with_room(1);
        outbox.connect(link);
        outbox.put(operation(0), Outcome::success(true));

        outbox.put(operation(1), Outcome::success(true));
        outbox.send(FromAgent::Beat);
        assert!(outbox.is_held_up());
        let before = outcomes(heard(&mut slow));
        outbox.send_waiting();

        assert_eq!((before, outcomes(heard(&mut slow))), (vec![operation(0)], vec![operation(1)]));
        assert!(!outbox.is_held_up());
    }

    #[test]
    fn no_outcome_overtakes_another_whatever_their_ids() {
        let mut outbox = outbox();
        outbox.restore([(operation(9), Outcome::success(true))]);
        let (link, mut slow) = with_room(1);
        outbox.connect(link);
        outbox.put(operation(8), Outcome::success(true));
        assert_eq!(outcomes(heard(&mut slow)), [operation(9)]);

        outbox.put(operation(7), Outcome::success(false));
        let mut order = Vec::new();
        while outbox.is_held_up() {
            order.extend(outcomes(heard(&mut slow)));
            outbox.send_waiting();
        }
        order.extend(outcomes(heard(&mut slow)));
        assert_eq!(order, [operation(8), operation(7)]);
        let (link, mut next) = with_room(8);
        outbox.connect(link);

        assert_eq!(outcomes(heard(&mut next)), [operation(9), operation(8), operation(7)]);
    }

    #[test]
    fn an_outcome_that_is_sent_again_does_not_become_the_last_word() {
        let mut outbox = outbox();
        let (link, mut heard_by) = with_room(8);
        outbox.connect(link);
        (0..3).for_each(|index| outbox.put(operation(index), Outcome::success(index == 1)));
        heard(&mut heard_by);

        outbox.send_again(&HashSet::from([operation(1), operation(5)]));

        assert_eq!(outcomes(heard(&mut heard_by)), [operation(1), operation(2)]);
    }

    #[test]
    fn a_session_carries_each_event_once_and_the_next_one_all_again() {
        let mut outbox = outbox();
        let _ = outbox.events.push(Draft::new(EventKind::Started, Message::foreign("a")), 1);
        assert!(!outbox.has_unreported(), "there is no session");
        let (link, mut first) = with_room(8);
        outbox.connect(link);
        assert!(outbox.has_unreported());

        outbox.send_events();
        outbox.send_events();
        let carried = heard(&mut first).len();
        let (link, mut second) = with_room(8);
        outbox.connect(link);
        outbox.send_events();

        assert_eq!((carried, heard(&mut second).len()), (1, 1));
        assert!(!outbox.has_unreported());
    }
}

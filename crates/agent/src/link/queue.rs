//! The order in which messages for the link are sent.
//!
//! Promised: what keeps the session and its work going is sent first, then outcomes, then events and observations,
//! and last the answers to queries, which are large; each class in order of arrival. No outcome overtakes another:
//! each says whether its process is managed, and the last one counts. One in [`LAST_EVERY`] turns goes to the classes
//! that are not first, in rotation. Holds no more than [`QUEUE_MAX`] messages, accepts none once they have
//! [`QUEUE_BYTES_MAX`] bytes, and holds no more than [`ANSWER_BYTES_MAX`] bytes of answers: a request for another log
//! is then told that the link is congested, and other answers are dropped. In addition it holds [`CONTROL_MAX`]
//! messages that keep the session going: however many outcomes there are, those neither wait for room nor are
//! dropped.
//! Absent: frames and signatures (see `report_sender`). A message is sent whole, and later ones wait for it.

use std::collections::VecDeque;

use proctor_model::{LOG_BYTES_MAX, LogState, LogTail, Outcome, Snapshot, UsagePoint};
use proctor_wire::FromAgent;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::report_sender::{NotSent, ReportSender};

/// More wait with the driver.
const QUEUE_MAX: usize = 256;
/// Messages that may wait for the queue.
const REPORTS_MAX: usize = 1024;
/// The same for what keeps the session going, each.
const CONTROL_MAX: usize = 64;
/// Of what outcomes and answers carry. The last one to come may go beyond it.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// For answers to queries. On a slow link they would delay what matters, and the requester times out.
const ANSWER_BYTES_MAX: usize = 4 * LOG_BYTES_MAX;
/// An outcome that carries more than this may take long.
const SMALL_BYTES_MAX: usize = 2 * 1024;
/// A report of more processes or events than this may take long.
const SMALL_ITEMS_MAX: usize = 16;
/// After this many messages, one turn goes to what is not first.
const LAST_EVERY: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Control,
    Outcome,
    Status,
    Output,
}

impl Class {
    const FIRST_TO_LAST: [Self; 4] = [Self::Control, Self::Outcome, Self::Status, Self::Output];

    fn of(message: &FromAgent) -> Self {
        match message {
            FromAgent::Beat
            | FromAgent::Settled { .. }
            | FromAgent::Seen { .. }
            | FromAgent::Renew { .. }
            | FromAgent::FetchBuild { .. }
            | FromAgent::UpgradeReport { .. }
            | FromAgent::Pong { .. }
            | FromAgent::Paced { .. }
            | FromAgent::Goodbye
            | FromAgent::Enrol { .. }
            | FromAgent::EnrolRelay { .. }
            | FromAgent::Trusted(_)
            | FromAgent::Return { .. }
            | FromAgent::Hello { .. }
            | FromAgent::Signed(_)
            | FromAgent::Unknown => Self::Control,
            FromAgent::Outcome { .. } => Self::Outcome,
            FromAgent::Observed { .. } | FromAgent::Events { .. } => Self::Status,
            FromAgent::UsageHistory { .. } | FromAgent::LogTail { .. } => Self::Output,
        }
    }
}

/// What others have for the link. Each kind has its own room; if there is none, the sender keeps or drops the
/// message.
#[derive(Clone, Debug)]
pub(crate) struct LinkOutbox {
    /// What keeps the session and its work going.
    pub(crate) control: mpsc::Sender<FromAgent>,
    /// All others.
    pub(crate) reports: mpsc::Sender<FromAgent>,
}

/// The other end of a [`LinkOutbox`].
#[derive(Debug)]
pub(super) struct Unqueued {
    pub(super) control: mpsc::Receiver<FromAgent>,
    pub(super) reports: mpsc::Receiver<FromAgent>,
}

pub(super) fn outbox() -> (LinkOutbox, Unqueued) {
    let (control, of_control) = mpsc::channel(CONTROL_MAX);
    let (reports, of_reports) = mpsc::channel(REPORTS_MAX);
    (LinkOutbox { control, reports }, Unqueued { control: of_control, reports: of_reports })
}

impl LinkOutbox {
    #[expect(clippy::result_large_err, reason = "as a channel: the message goes back to whoever keeps it")]
    pub(crate) fn try_send(&self, message: FromAgent) -> Result<(), TrySendError<FromAgent>> {
        match Class::of(&message) {
            Class::Control => self.control.try_send(message),
            Class::Outcome | Class::Status | Class::Output => self.reports.try_send(message),
        }
    }
}

/// Whether something more urgent may arrive while it is being sent.
fn may_take_long(message: &FromAgent) -> bool {
    if let FromAgent::Observed { observations } = message {
        return observations.len() > SMALL_ITEMS_MAX;
    }
    if let FromAgent::Events { events } = message {
        return events.len() > SMALL_ITEMS_MAX;
    }
    if let FromAgent::Outcome { outcome, .. } = message {
        return !is_small(outcome);
    }
    Class::of(message) == Class::Output
}

/// Instances have their state each.
fn is_small(outcome: &Outcome) -> bool {
    outcome.output.len() + outcome.message.as_str().len() <= SMALL_BYTES_MAX && outcome.instances.is_empty()
}

/// The part of a message that may be large.
fn bytes_of(message: &FromAgent) -> usize {
    if let FromAgent::Outcome { outcome, .. } = message {
        let instances = outcome.instances.len() * size_of::<Snapshot>();
        return outcome.output.len() + outcome.message.bytes() + instances;
    }
    if let FromAgent::LogTail { tail, .. } = message {
        return tail.bytes.len();
    }
    if let FromAgent::UsageHistory { history, .. } = message {
        return history.points.len() * size_of::<UsagePoint>();
    }
    0
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: [VecDeque<FromAgent>; 4],
    /// As [`bytes_of`] them.
    bytes: [usize; 4],
    turns: u32,
}

impl Queue {
    pub(super) fn has_room(&self) -> bool {
        let [_, reports @ ..] = &self.waiting;
        let count = reports.iter().map(VecDeque::len).sum::<usize>();
        count < QUEUE_MAX && self.bytes.iter().sum::<usize>() < QUEUE_BYTES_MAX
    }

    pub(super) fn has_control_room(&self) -> bool {
        self.waiting[Class::Control as usize].len() < CONTROL_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = FromAgent>) {
        messages.into_iter().for_each(|message| self.push(message));
    }

    pub(super) fn push(&mut self, message: FromAgent) {
        let class = Class::of(&message) as usize;
        if let Some(message) = self.fitted(message) {
            self.bytes[class] += bytes_of(&message);
            self.waiting[class].push_back(message);
        }
    }

    /// An answer as small as there is room for. None: nobody will be waiting for it by the time there is.
    fn fitted(&self, message: FromAgent) -> Option<FromAgent> {
        let answers = self.bytes[Class::Output as usize];
        if Class::of(&message) != Class::Output || answers + bytes_of(&message) <= ANSWER_BYTES_MAX {
            return Some(message);
        }
        let FromAgent::LogTail { request, tail } = message else { return None };
        let tail = LogTail::none(LogState::Busy, tail.path, "the link is behind");
        Some(FromAgent::LogTail { request, tail })
    }

    /// The next one to send.
    fn pop(&mut self) -> Option<FromAgent> {
        self.turns = self.turns.wrapping_add(1);
        let mut classes = Class::FIRST_TO_LAST;
        if self.turns.is_multiple_of(LAST_EVERY) {
            // The last, the last but one, the last but two, and so on.
            let others = classes.len() - 1;
            classes.rotate_right(1 + (self.turns / LAST_EVERY) as usize % others);
        }
        let next = classes.into_iter().find_map(|class| self.waiting[class as usize].pop_front());
        if let Some(message) = &next {
            self.bytes[Class::of(message) as usize] -= bytes_of(message);
        }
        next
    }
}

/// What goes into one flush: everything that waits, up to the first message that may take long. What arrives while
/// that one is being sent may be more urgent than what waits behind it.
pub(super) async fn send_next<S: AsyncRead + AsyncWrite + Unpin>(
    sender: &mut ReportSender<S>,
    queue: &mut Queue,
    unqueued: &mut Unqueued,
) -> Result<(), NotSent> {
    let mut is_any = false;
    loop {
        while queue.has_control_room()
            && let Ok(message) = unqueued.control.try_recv()
        {
            queue.push(message);
        }
        while queue.has_room()
            && let Ok(message) = unqueued.reports.try_recv()
        {
            queue.push(message);
        }
        let Some(message) = queue.pop() else { break };
        let is_last = may_take_long(&message);
        sender.feed(message).await?;
        is_any = true;
        if is_last {
            break;
        }
    }
    if is_any { sender.flush().await } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use proctor_model::{OperationId, TaskId, UsageHistory};
    use proctor_wire::{AgentCodec, Counted, ServerCodec, ends, framed};

    use super::*;

    fn outcome(index: u32, output_bytes: usize) -> FromAgent {
        let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        FromAgent::Outcome { operation, outcome: Outcome::success(true).with_output("x".repeat(output_bytes)) }
    }

    fn all(queue: &mut Queue) -> Vec<FromAgent> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    fn answer(request: u64) -> FromAgent {
        FromAgent::UsageHistory { request, history: UsageHistory::default() }
    }

    fn status() -> FromAgent {
        FromAgent::Observed { observations: Vec::new() }
    }

    #[test]
    fn what_matters_goes_first_and_each_kind_in_its_order() {
        let large = 8 * 1024;
        let mut queue = Queue::default();
        for message in [answer(0), status(), outcome(0, large), outcome(1, 0), answer(1), FromAgent::Beat] {
            queue.push(message);
        }

        let expected = [FromAgent::Beat, outcome(0, large), outcome(1, 0), status(), answer(0), answer(1)];
        assert_eq!(all(&mut queue), expected, "a later outcome never overtakes an earlier one");
    }

    #[test]
    fn everybody_has_a_turn_however_much_of_the_others_there_is() {
        let mut queue = Queue::default();
        for message in [answer(0), status(), outcome(0, 0)] {
            queue.push(message);
        }
        let mut sent = Vec::new();
        for _ in 0..4 * LAST_EVERY {
            // There is always something that goes first.
            queue.push(FromAgent::Beat);
            sent.extend(queue.pop().filter(|message| *message != FromAgent::Beat));
        }

        assert_eq!(sent.len(), 3, "{sent:?}");
    }

    #[test]
    fn it_holds_so_many_and_no_more() {
        let mut queue = Queue::default();
        let mut pushed = 0;
        while queue.has_room() {
            queue.push(status());
            pushed += 1;
        }

        assert_eq!(pushed, QUEUE_MAX);
        queue.pop();
        assert!(queue.has_room());
        while queue.has_control_room() {
            queue.push(FromAgent::Beat);
            pushed += 1;
        }
        assert_eq!(pushed, QUEUE_MAX + CONTROL_MAX);
    }

    #[tokio::test]
    async fn however_many_outcomes_wait_a_beat_has_its_room_and_goes_first() {
        let (near, far) = tokio::io::duplex(1 << 20);
        let stream = Counted::new(near);
        let counters = stream.counters();
        let (frames, _receiver) = ends(framed(stream, AgentCodec::new()), counters);
        let (mut sender, mut queue) = (ReportSender::new(frames, None), Queue::default());
        let (outbox, mut unqueued) = outbox();
        // The queue is full, and so is what waits for it.
        queue.extend((0..).map(|index| outcome(index, SMALL_BYTES_MAX + 1)).take(QUEUE_MAX));
        let unfit = (0..)
            .map(|index| outcome(index, SMALL_BYTES_MAX + 1))
            .take_while(|outcome| outbox.try_send(outcome.clone()).is_ok());
        assert_eq!(unfit.count(), REPORTS_MAX);

        outbox.try_send(FromAgent::Beat).expect("it has its own room");
        send_next(&mut sender, &mut queue, &mut unqueued).await.unwrap();

        let first = framed(far, ServerCodec::new()).next().await.unwrap().unwrap();
        assert_eq!(first, FromAgent::Beat);
    }

    #[test]
    fn logs_that_wait_for_a_slow_link_are_bounded_and_whoever_asks_is_answered() {
        let mut queue = Queue::default();
        let tail = LogTail { bytes: vec![b'x'; LOG_BYTES_MAX], ..LogTail::default() };
        let asked = u64::try_from(QUEUE_MAX).unwrap();
        for request in 0..asked {
            queue.push(FromAgent::LogTail { request, tail: tail.clone() });
        }

        let mut answers = Vec::new();
        while let Some(FromAgent::LogTail { request, tail }) = queue.pop() {
            answers.push((request, tail.bytes.len(), tail.state));
        }

        let bytes: usize = answers.iter().map(|(_, bytes, _)| bytes).sum();
        assert!((LOG_BYTES_MAX..=ANSWER_BYTES_MAX).contains(&bytes), "{bytes}");
        assert!(answers.iter().map(|(request, ..)| *request).eq(0..asked));
        let busy = answers.iter().filter(|(_, _, state)| *state == LogState::Busy).count();
        assert_eq!(busy, QUEUE_MAX - bytes / LOG_BYTES_MAX);
        assert_eq!(queue.bytes, [0; 4]);
        queue.push(FromAgent::LogTail { request: 0, tail });
        assert_eq!(queue.bytes[Class::Output as usize], LOG_BYTES_MAX, "there is room again");
    }

    #[test]
    fn large_outcomes_leave_the_rest_with_the_driver() {
        let mut queue = Queue::default();
        let mut pushed = 0;
        while queue.has_room() {
            queue.push(outcome(pushed, 1024 * 1024));
            pushed += 1;
        }

        assert_eq!(pushed, 4);
        queue.pop();
        assert!(queue.has_room());
    }

    #[tokio::test]
    async fn what_comes_while_something_large_is_sent_goes_before_what_is_large_too() {
        let (near, far) = tokio::io::duplex(1 << 20);
        let stream = Counted::new(near);
        let counters = stream.counters();
        let (frames, _receiver) = ends(framed(stream, AgentCodec::new()), counters);
        let mut sender = ReportSender::new(frames, None);
        let (outbox, mut unqueued) = outbox();
        let large = |index| outcome(index, 100_000);
        for index in 0..3 {
            outbox.try_send(large(index)).unwrap();
        }
        let mut queue = Queue::default();

        send_next(&mut sender, &mut queue, &mut unqueued).await.unwrap();
        outbox.try_send(FromAgent::Beat).unwrap();
        while !queue.is_empty() || !unqueued.control.is_empty() {
            send_next(&mut sender, &mut queue, &mut unqueued).await.unwrap();
        }

        let sent: Vec<_> = framed(far, ServerCodec::new()).take(4).map(Result::unwrap).collect().await;
        assert_eq!(sent, [large(0), FromAgent::Beat, large(1), large(2)]);
    }
}

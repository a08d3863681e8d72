//! In which order what waits for the link goes out.
//!
//! Promised: what keeps the session and its work going is sent first, then outcomes, then events and what processes do,
//! and last the answers to questions, which are large; each of these in the order in which it came. No outcome overtakes
//! another: each says whether its process is managed, and the last word counts. Of [`LAST_EVERY`] turns one goes to
//! those that are not first, in turn. Holds no more than [`QUEUE_MAX`] messages. Absent: frames and signatures (see
//! `report_sender`). A message is sent whole, and whatever comes later waits for it.

use std::collections::VecDeque;

use proctor_model::Outcome;
use proctor_wire::FromAgent;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::report_sender::{NotSent, ReportSender};

/// More wait with the driver.
const QUEUE_MAX: usize = 256;
/// An outcome that carries more than this may take long.
const SMALL_BYTES_MAX: usize = 2 * 1024;
/// A report of more processes or events than this may take long.
const SMALL_ITEMS_MAX: usize = 16;
/// So many messages bring one turn for what is not first.
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
            | FromAgent::Enrol { .. }
            | FromAgent::EnrolRelay { .. }
            | FromAgent::Hello { .. }
            | FromAgent::Signed(_)
            | FromAgent::Unknown => Self::Control,
            FromAgent::Outcome { .. } => Self::Outcome,
            FromAgent::Observed { .. } | FromAgent::Events { .. } => Self::Status,
            FromAgent::UsageHistory { .. } | FromAgent::LogTail { .. } => Self::Output,
        }
    }
}

/// Whether something more urgent may come while it is on its way.
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

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: [VecDeque<FromAgent>; 4],
    turns: u32,
}

impl Queue {
    pub(super) fn has_room(&self) -> bool {
        self.waiting.iter().map(VecDeque::len).sum::<usize>() < QUEUE_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = FromAgent>) {
        messages.into_iter().for_each(|message| self.push(message));
    }

    pub(super) fn push(&mut self, message: FromAgent) {
        self.waiting[Class::of(&message) as usize].push_back(message);
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
        classes.into_iter().find_map(|class| self.waiting[class as usize].pop_front())
    }
}

/// What goes into one flush: all that waits, up to the first message that may take long. What comes while that one is on
/// its way may be more urgent than what waits behind it.
pub(super) async fn send_next<S: AsyncRead + AsyncWrite + Unpin>(
    sender: &mut ReportSender<S>,
    queue: &mut Queue,
    messages: &mut mpsc::Receiver<FromAgent>,
) -> Result<(), NotSent> {
    let mut is_any = false;
    loop {
        while queue.has_room()
            && let Ok(message) = messages.try_recv()
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
            queue.push(FromAgent::Beat);
            pushed += 1;
        }

        assert_eq!(pushed, QUEUE_MAX);
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
        let (outbox, mut messages) = mpsc::channel(8);
        let large = |index| outcome(index, 100_000);
        for index in 0..3 {
            outbox.try_send(large(index)).unwrap();
        }
        let mut queue = Queue::default();

        send_next(&mut sender, &mut queue, &mut messages).await.unwrap();
        outbox.try_send(FromAgent::Beat).unwrap();
        while !queue.is_empty() || !messages.is_empty() {
            send_next(&mut sender, &mut queue, &mut messages).await.unwrap();
        }

        let sent: Vec<_> = framed(far, ServerCodec::new()).take(4).map(Result::unwrap).collect().await;
        assert_eq!(sent, [large(0), FromAgent::Beat, large(1), large(2)]);
    }
}

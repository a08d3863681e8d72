//! Liveness of an agent behind a relay, by its own signature.
//!
//! Promised: heartbeats reported by a relay keep a session for at most [`PROOF_MAX`]. An agent is pinged several
//! times in that time, and only its signed answer counts, as of when the ping was sent: a relay can neither answer
//! for it nor keep answers for later.
//! Absent: directly connected agents, whose TLS proves it, and agents that do not answer pings.

use std::time::{Duration, Instant};

use proctor_runtime::Dice;

use crate::control::Session;

/// An agent behind a relay that has not answered anything that was sent in this time is taken for gone.
pub(super) const PROOF_MAX: Duration = Duration::from_secs(600);
/// How often it is pinged in that time: answers get lost, and links are slow.
const QUESTIONS: u32 = 3;
/// How often it is looked at in that time.
const LOOKS: u32 = 20;

#[derive(Debug)]
pub(super) struct Proof {
    max: Duration,
    opened: Instant,
    ask_at: Instant,
    /// When the first question was asked that has no answer.
    unanswered_since: Option<Instant>,
    dice: Dice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Believed,
    /// It is time to ask again.
    Ask,
    Gone,
}

impl Proof {
    /// Of a session that opens now, which itself proves that the agent is there. None where the agent is not asked.
    pub(super) fn of(session: &Session, max: Duration) -> Option<Box<Self>> {
        let is_asked = session.relay_cloud().is_some() && session.answers_pings();
        is_asked.then(|| Box::new(Self::new(max, Instant::now())))
    }

    fn new(max: Duration, now: Instant) -> Self {
        let mut proof = Self { max, opened: now, ask_at: now, unanswered_since: None, dice: Dice::default() };
        proof.ask_later(now);
        proof
    }

    /// How often to look at it. Nothing else may come of an agent at rest: its relay answers its heartbeats.
    pub(super) fn period(&self) -> Duration {
        self.max / LOOKS
    }

    /// Agents that came at once are not asked at once.
    fn ask_later(&mut self, now: Instant) {
        let period = self.max / QUESTIONS;
        self.ask_at = now + self.dice.between(period * 3 / 4, period * 5 / 4);
    }

    /// Whether the agent counts as alive. Pings it if that is due.
    pub(super) fn is_good(&mut self, session: &Session) -> bool {
        match self.judge(session.answered_as_of(), Instant::now()) {
            Verdict::Believed => true,
            Verdict::Ask => {
                session.ask_ping();
                true
            }
            Verdict::Gone => false,
        }
    }

    fn judge(&mut self, answered_as_of: Option<Instant>, now: Instant) -> Verdict {
        let proved = answered_as_of.map_or(self.opened, |at| at.max(self.opened));
        self.unanswered_since = self.unanswered_since.filter(|asked| proved < *asked);
        // While the server itself was stalled, nobody was pinged.
        let had_time = |asked: Instant| now.saturating_duration_since(asked) >= self.max / QUESTIONS;
        if now.saturating_duration_since(proved) >= self.max && self.unanswered_since.is_some_and(had_time) {
            return Verdict::Gone;
        }
        if now < self.ask_at {
            return Verdict::Believed;
        }
        self.ask_later(now);
        self.unanswered_since.get_or_insert(now);
        Verdict::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(5);

    /// When it asked, and when it gave the agent up, within two hours; `answered` is what is known at a time.
    fn run(answered: impl Fn(&[Duration], Duration) -> Option<Duration>) -> (Vec<Duration>, Option<Duration>) {
        let begun = Instant::now();
        let (mut proof, mut asked) = (Proof::new(PROOF_MAX, begun), Vec::new());
        let mut at = Duration::ZERO;
        while at < Duration::from_secs(7200) {
            at += STEP;
            match proof.judge(answered(&asked, at).map(|of| begun + of), begun + at) {
                Verdict::Believed => {}
                Verdict::Ask => asked.push(at),
                Verdict::Gone => return (asked, Some(at)),
            }
        }
        (asked, None)
    }

    #[test]
    fn an_agent_that_never_answers_is_gone_after_the_bound_however_much_is_said_for_it() {
        let (asked, gone) = run(|_, _| None);

        assert_eq!(gone, Some(PROOF_MAX));
        assert!((2..=4).contains(&asked.len()), "{asked:?}");
    }

    #[test]
    fn an_agent_that_answers_slowly_is_believed_and_asked_a_few_times() {
        let (asked, gone) =
            run(|asked, now| asked.iter().rev().find(|sent| now - **sent >= Duration::from_secs(200)).copied());

        assert_eq!(gone, None);
        assert!((28..=48).contains(&asked.len()), "7200 s at 150 to 250 s: {}", asked.len());
    }

    #[test]
    fn an_agent_that_was_not_asked_in_time_gets_time_to_answer() {
        let begun = Instant::now();
        let mut proof = Proof::new(PROOF_MAX, begun);
        let late = begun + 2 * PROOF_MAX;

        assert_eq!(proof.judge(None, late), Verdict::Ask);
        assert_eq!(proof.judge(None, late + PROOF_MAX / QUESTIONS / 2), Verdict::Believed);
        assert_eq!(proof.judge(None, late + PROOF_MAX / QUESTIONS), Verdict::Gone);
        assert_eq!(proof.judge(Some(late), late + PROOF_MAX / 2), Verdict::Ask, "it has answered");
    }

    #[test]
    fn an_answer_counts_from_when_its_question_was_sent() {
        let (asked, gone) = run(|asked, _| asked.first().copied());

        let gone = gone.expect("only the first was answered");
        assert_eq!(gone, asked[0] + PROOF_MAX, "{asked:?}");
    }
}

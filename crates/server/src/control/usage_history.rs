//! Asking a host what its processes used.
//!
//! Promised: whoever looks is answered within [`DEADLINE`]; any number of viewers of one process cost its host one
//! question within [`UsageRange`]'s time to live; questions under way are at most [`QUESTIONS_MAX`] on the server and
//! [`SESSION_QUESTIONS_MAX`] on one session, and answers that are kept at most [`ANSWERS_MAX`]. An answer that nobody
//! asked for is dropped. Absent: permissions (whoever calls has looked the process up as its caller) and the store:
//! the server keeps no history.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{AgentId, ProcessKey, UsageHistory, UsageRange};
use tokio::sync::{OnceCell, Semaphore, oneshot};
use tokio::time::Instant;

use super::{Control, Session};

const DEADLINE: Duration = Duration::from_secs(5);
/// Under way on the whole server.
const QUESTIONS_MAX: usize = 256;
/// Under way on one session.
const SESSION_QUESTIONS_MAX: usize = 8;
/// Kept for the next viewers; at most 80 kB each.
const ANSWERS_MAX: usize = 128;

/// A host that comes back is asked soon.
const NO_HISTORY_TIME_TO_LIVE: Duration = Duration::from_secs(1);

/// What a host said.
#[derive(Clone, Debug, PartialEq)]
pub enum UsageAnswer {
    History(Arc<UsageHistory>),
    Offline,
    AgentTooOld,
    NoAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many usage queries are under way: try again in a second")]
pub struct UsageBusy;

type Wanted = (AgentId, ProcessKey, UsageRange);

/// The questions of one server.
#[derive(Debug)]
pub(super) struct UsageQueries {
    permits: Semaphore,
    next: AtomicU64,
    answers: Mutex<HashMap<Wanted, Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    asked: Instant,
    answer: Arc<OnceCell<UsageAnswer>>,
}

impl Default for UsageQueries {
    fn default() -> Self {
        Self { permits: Semaphore::new(QUESTIONS_MAX), next: AtomicU64::new(1), answers: Mutex::default() }
    }
}

impl UsageQueries {
    /// Where the answer is, or will be.
    fn shared(&self, wanted: Wanted, now: Instant) -> Arc<OnceCell<UsageAnswer>> {
        let mut answers = self.answers.lock();
        let is_fresh = |(_, _, range): &Wanted, kept: &Kept| match kept.answer.get() {
            Some(UsageAnswer::History(_)) | None => now.duration_since(kept.asked) < time_to_live(*range),
            Some(UsageAnswer::Offline | UsageAnswer::AgentTooOld | UsageAnswer::NoAnswer) => {
                now.duration_since(kept.asked) < NO_HISTORY_TIME_TO_LIVE
            }
        };
        if let Some(kept) = answers.get(&wanted).filter(|kept| is_fresh(&wanted, kept)) {
            return kept.answer.clone();
        }
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|wanted, kept| is_fresh(wanted, kept));
        }
        if answers.len() >= ANSWERS_MAX {
            let oldest = answers.iter().min_by_key(|(_, kept)| kept.asked).map(|(wanted, _)| wanted.clone());
            oldest.map(|oldest| answers.remove(&oldest));
        }
        let answer = Arc::default();
        answers.insert(wanted, Kept { asked: now, answer: Arc::clone(&answer) });
        answer
    }
}

/// As long as the next point takes, about.
fn time_to_live(range: UsageRange) -> Duration {
    match range {
        UsageRange::Hour => Duration::from_secs(5),
        UsageRange::Week => Duration::from_secs(30),
    }
}

/// The questions of one session.
#[derive(Debug, Default)]
pub(super) struct Questions {
    unsent: Vec<Question>,
    waiting: HashMap<u64, oneshot::Sender<UsageHistory>>,
}

/// What an agent is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub request: u64,
    pub key: ProcessKey,
    pub range: UsageRange,
}

/// A question that somebody waits for; forgotten with them.
#[derive(Debug)]
struct Waiting<'a> {
    session: &'a Session,
    request: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut questions = self.session.questions.lock();
        questions.waiting.remove(&self.request);
        questions.unsent.retain(|question| question.request != self.request);
    }
}

impl Session {
    fn ask(&self, question: Question) -> Result<(Waiting<'_>, oneshot::Receiver<UsageHistory>), UsageBusy> {
        let (answer, answered) = oneshot::channel();
        let request = question.request;
        let mut questions = self.questions.lock();
        if questions.waiting.len() >= SESSION_QUESTIONS_MAX {
            return Err(UsageBusy);
        }
        questions.waiting.insert(request, answer);
        questions.unsent.push(question);
        drop(questions);
        self.wake();
        Ok((Waiting { session: self, request }, answered))
    }

    /// What the agent is to be asked now.
    pub fn take_questions(&self) -> Vec<Question> {
        std::mem::take(&mut self.questions.lock().unsent)
    }

    /// False: nobody asked this, or nobody waits any more.
    pub fn answer(&self, request: u64, history: UsageHistory) -> bool {
        let waiting = self.questions.lock().waiting.remove(&request);
        waiting.is_some_and(|waiting| waiting.send(history).is_ok())
    }

    /// The session is over: nobody will answer.
    pub(super) fn drop_questions(&self) {
        *self.questions.lock() = Questions::default();
    }
}

impl Control {
    /// What a process used, as its host tells.
    pub async fn usage_history(
        &self,
        agent: &AgentId,
        key: &ProcessKey,
        range: UsageRange,
    ) -> Result<UsageAnswer, UsageBusy> {
        let wanted = (agent.clone(), key.clone(), range);
        let shared = self.inner.usage_queries.shared(wanted, Instant::now());
        shared.get_or_try_init(|| self.ask_usage(agent, key, range)).await.cloned()
    }

    async fn ask_usage(&self, agent: &AgentId, key: &ProcessKey, range: UsageRange) -> Result<UsageAnswer, UsageBusy> {
        let Some(session) = self.inner.sessions.get(agent) else { return Ok(UsageAnswer::Offline) };
        if !session.answers_usage() {
            return Ok(UsageAnswer::AgentTooOld);
        }
        let queries = &self.inner.usage_queries;
        let _permit = queries.permits.try_acquire().map_err(|_| UsageBusy)?;
        let request = queries.next.fetch_add(1, Ordering::Relaxed);
        let (_waiting, answered) = session.ask(Question { request, key: key.clone(), range })?;
        match tokio::time::timeout(DEADLINE, answered).await {
            Ok(Ok(history)) => Ok(UsageAnswer::History(Arc::new(history))),
            Ok(Err(_)) => Ok(UsageAnswer::Offline),
            Err(_) => Ok(UsageAnswer::NoAnswer),
        }
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::BootId;
    use proctor_store::SessionOpening;

    use super::super::Greeting;
    use super::*;

    fn wanted(number: usize, range: UsageRange) -> Wanted {
        (format!("agent-{number}").parse().unwrap(), "ns/web".parse().unwrap(), range)
    }

    fn session() -> Session {
        let opening = SessionOpening::new("agent-1".parse().unwrap(), String::new());
        Session::new(Greeting::new(opening, BootId::from("boot")), 1)
    }

    fn question(request: u64) -> Question {
        Question { request, key: "ns/web".parse().unwrap(), range: UsageRange::Hour }
    }

    #[test]
    fn viewers_of_one_process_share_an_answer_until_it_is_old() {
        let (queries, now) = (UsageQueries::default(), Instant::now());
        let first = queries.shared(wanted(1, UsageRange::Hour), now);

        let soon = queries.shared(wanted(1, UsageRange::Hour), now + Duration::from_secs(4));
        let other = queries.shared(wanted(1, UsageRange::Week), now);
        let later = queries.shared(wanted(1, UsageRange::Hour), now + Duration::from_secs(5));

        assert!(Arc::ptr_eq(&first, &soon));
        assert!(!Arc::ptr_eq(&first, &other) && !Arc::ptr_eq(&first, &later));
    }

    #[test]
    fn the_oldest_answer_gives_way() {
        let (queries, now) = (UsageQueries::default(), Instant::now());
        let at = |number: usize| now + Duration::from_millis(number as u64);
        let newest: Vec<_> =
            (0..3 * ANSWERS_MAX).map(|number| queries.shared(wanted(number, UsageRange::Week), at(number))).collect();

        let again = queries.shared(wanted(3 * ANSWERS_MAX - 1, UsageRange::Week), at(3 * ANSWERS_MAX));

        assert!(queries.answers.lock().len() <= ANSWERS_MAX);
        assert!(Arc::ptr_eq(&again, newest.last().unwrap()));
    }

    #[test]
    fn a_session_has_a_bounded_number_of_questions_and_forgets_who_left() {
        let session = session();
        let asked: Vec<_> =
            (0..SESSION_QUESTIONS_MAX as u64).map(|request| session.ask(question(request)).unwrap()).collect();

        assert_eq!(session.ask(question(99)).unwrap_err(), UsageBusy);
        assert_eq!(session.take_questions().len(), SESSION_QUESTIONS_MAX);
        drop(asked);
        let (_waiting, _answered) = session.ask(question(100)).unwrap();
        assert_eq!(session.take_questions(), [question(100)]);
    }

    #[test]
    fn an_answer_counts_once_and_only_where_it_was_asked_for() {
        let session = session();
        let (_waiting, mut answered) = session.ask(question(7)).unwrap();

        let taken = [6, 7, 7].map(|request| session.answer(request, UsageHistory::default()));

        assert_eq!(taken, [false, true, false]);
        assert_eq!(answered.try_recv().unwrap(), UsageHistory::default());
    }
}

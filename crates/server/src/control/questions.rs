//! Queries to a host for what only it knows: the usage and the logs of its processes.
//!
//! Promised: a viewer is answered within [`DEADLINE`]; a query lives until its answer or that deadline, even if its
//! viewers leave, so any number of viewers of one process cost its host one query at a time, and none while an answer
//! is fresh. At most [`QUESTIONS_MAX`] queries are in progress on the server and [`SESSION_QUESTIONS_MAX`] per
//! session, half of them for logs, and at most [`ANSWERS_MAX`] answers are cached. A query is charged to the first
//! who asked (`shares`) while it lives, even after they disconnect: one payer leaves half of the server's queries to
//! others and a quarter of those of each session, and administrators have some beyond all of that. An answer that
//! nobody asked for, or to another query, is dropped.
//! Absent: permissions (the caller has looked the process up on behalf of its own caller) and the store: the server
//! keeps no history and no logs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{AgentId, LogQuery, LogTail, ProcessKey, UsageHistory, UsageRange};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::{Caller, Control, Session};
use crate::shares::{Held, Shares, payer_of};

const DEADLINE: Duration = Duration::from_secs(5);
/// In progress on the whole server.
const QUESTIONS_MAX: u64 = 256;
/// Of these, those of one payer.
const PAYER_QUESTIONS_MAX: u64 = QUESTIONS_MAX / 2;
/// Beyond these, for administrators only; on the server, and on one session.
const ADMIN_QUESTIONS: u64 = 32;
const SESSION_ADMIN_QUESTIONS: usize = 2;
/// In progress on one session.
const SESSION_QUESTIONS_MAX: usize = 8;
/// Of these about logs, which may hang where usage does not.
const SESSION_LOG_QUESTIONS_MAX: usize = SESSION_QUESTIONS_MAX / 2;
/// Kept for the next viewers; at most 97 kB each.
const ANSWERS_MAX: usize = 128;

/// A host that comes back is queried again soon.
const NO_ANSWER_TIME_TO_LIVE: Duration = Duration::from_secs(1);
/// A log is followed; what it holds is not kept for longer than viewers need to share it.
const LOG_TIME_TO_LIVE: Duration = Duration::from_secs(1);

/// What a host answered.
#[derive(Clone, Debug, PartialEq)]
pub enum HostAnswer<T> {
    Told(T),
    Offline,
    AgentTooOld,
    NoAnswer,
}

/// What an agent is asked about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    Usage(UsageRange),
    Log(LogQuery),
}

/// What it says to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Usage(Arc<UsageHistory>),
    Log(Arc<LogTail>),
}

impl Reply {
    fn answers(&self, asked: Asked) -> bool {
        match (self, asked) {
            (Self::Usage(_), Asked::Usage(_)) | (Self::Log(_), Asked::Log(_)) => true,
            (Self::Usage(_), Asked::Log(_)) | (Self::Log(_), Asked::Usage(_)) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many queries to hosts are in progress: try again in a second")]
pub struct HostsBusy;

type Wanted = (AgentId, ProcessKey, Asked);
/// None: the query is in progress.
type SharedAnswer = watch::Receiver<Option<Answered>>;

#[derive(Clone, Debug)]
struct Answered {
    at: Instant,
    answer: HostAnswer<Reply>,
}

/// The questions of one server.
#[derive(Debug)]
pub(super) struct HostQueries {
    under_way: Arc<Mutex<Held>>,
    next: AtomicU64,
    answers: Mutex<HashMap<Wanted, SharedAnswer>>,
}

impl Default for HostQueries {
    fn default() -> Self {
        Self { under_way: Arc::default(), next: AtomicU64::new(1), answers: Mutex::default() }
    }
}

/// On whose account a question is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asker {
    account: String,
    is_admin: bool,
}

impl Asker {
    fn new(caller: &Caller) -> Self {
        Self { account: caller.account(), is_admin: caller.is_admin() }
    }

    fn is_of_payer(&self, other: &Self) -> bool {
        payer_of(&self.account) == payer_of(&other.account)
    }
}

/// A query in progress on the server.
#[derive(Debug)]
struct QuestionPermit {
    under_way: Arc<Mutex<Held>>,
    account: String,
}

impl Drop for QuestionPermit {
    fn drop(&mut self) {
        self.under_way.lock().remove(&self.account, 1);
    }
}

impl HostQueries {
    fn permit(&self, asker: &Asker) -> Result<QuestionPermit, HostsBusy> {
        let shares = match asker.is_admin {
            true => Shares::new(QUESTIONS_MAX + ADMIN_QUESTIONS, PAYER_QUESTIONS_MAX + ADMIN_QUESTIONS),
            false => Shares::new(QUESTIONS_MAX, PAYER_QUESTIONS_MAX),
        };
        let mut under_way = self.under_way.lock();
        if under_way.full(&asker.account, 1, shares).is_some() {
            return Err(HostsBusy);
        }
        under_way.add(&asker.account, 1);
        Ok(QuestionPermit { under_way: Arc::clone(&self.under_way), account: asker.account.clone() })
    }

    /// The cached or pending answer; otherwise that of a new query, which `begin` sends.
    fn join_or_begin(
        &self,
        wanted: &Wanted,
        now: Instant,
        begin: impl FnOnce() -> Result<SharedAnswer, HostsBusy>,
    ) -> Result<SharedAnswer, HostsBusy> {
        let mut answers = self.answers.lock();
        if let Some(shared) = answers.get(wanted).filter(|shared| is_fresh(wanted, shared, now)) {
            return Ok(shared.clone());
        }
        let shared = begin()?;
        answers.insert(wanted.clone(), shared.clone());
        Ok(shared)
    }

    /// When a log that has just been answered is old: it may hold secrets, so it does not wait for the next answer.
    async fn trim_later(&self) {
        tokio::time::sleep(LOG_TIME_TO_LIVE).await;
        self.trim(Instant::now());
    }

    /// Drops stale answers, then the oldest beyond [`ANSWERS_MAX`]. What is in progress stays.
    fn trim(&self, now: Instant) {
        let mut answers = self.answers.lock();
        answers.retain(|wanted, shared| is_fresh(wanted, shared, now));
        let mut answered: Vec<(Instant, Wanted)> = answers
            .iter()
            .filter_map(|(wanted, shared)| shared.borrow().as_ref().map(|answered| (answered.at, wanted.clone())))
            .collect();
        let surplus = answered.len().saturating_sub(ANSWERS_MAX);
        answered.sort_by_key(|(at, _)| *at);
        for (_, wanted) in &answered[..surplus] {
            answers.remove(wanted);
        }
    }
}

fn is_fresh((_, _, asked): &Wanted, shared: &SharedAnswer, now: Instant) -> bool {
    match &*shared.borrow() {
        None => shared.has_changed().is_ok(), // an error: whoever asked is gone
        Some(Answered { at, answer }) => now.duration_since(*at) < time_to_live(answer, *asked),
    }
}

/// Of usage as long as the next point takes, about.
fn time_to_live(answer: &HostAnswer<Reply>, asked: Asked) -> Duration {
    match (answer, asked) {
        (HostAnswer::Told(_), Asked::Usage(UsageRange::Hour)) => Duration::from_secs(5),
        (HostAnswer::Told(_), Asked::Usage(UsageRange::Week)) => Duration::from_secs(30),
        (HostAnswer::Told(_), Asked::Log(_)) => LOG_TIME_TO_LIVE,
        (HostAnswer::Offline | HostAnswer::AgentTooOld | HostAnswer::NoAnswer, _) => NO_ANSWER_TIME_TO_LIVE,
    }
}

/// The questions of one session.
#[derive(Debug, Default)]
pub(super) struct Questions {
    unsent: Vec<Question>,
    waiting: HashMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    asked: Asked,
    asker: Asker,
    answer: oneshot::Sender<Reply>,
}

impl Questions {
    fn has_room(&self, asked: Asked, asker: &Asker) -> bool {
        let is_log = |asked: Asked| matches!(asked, Asked::Log(_));
        let reserve = if asker.is_admin { SESSION_ADMIN_QUESTIONS } else { 0 };
        let has_room = |max: usize, counts: &dyn Fn(&Waiting) -> bool| {
            let of_payer_max = max - max / 4 + reserve;
            let counted = || self.waiting.values().filter(|waiting| counts(waiting));
            counted().count() < max + reserve
                && counted().filter(|waiting| waiting.asker.is_of_payer(asker)).count() < of_payer_max
        };
        has_room(SESSION_QUESTIONS_MAX, &|_| true)
            && (!is_log(asked) || has_room(SESSION_LOG_QUESTIONS_MAX, &|waiting| is_log(waiting.asked)))
    }
}

/// What an agent is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub request: u64,
    pub key: ProcessKey,
    pub asked: Asked,
}

impl<T> HostAnswer<T> {
    fn filtered<U>(self, told: impl FnOnce(T) -> Option<U>) -> HostAnswer<U> {
        match self {
            Self::Told(reply) => told(reply).map_or(HostAnswer::NoAnswer, HostAnswer::Told),
            Self::Offline => HostAnswer::Offline,
            Self::AgentTooOld => HostAnswer::AgentTooOld,
            Self::NoAnswer => HostAnswer::NoAnswer,
        }
    }
}

impl Session {
    fn ask(&self, question: Question, asker: Asker) -> Result<oneshot::Receiver<Reply>, HostsBusy> {
        let (answer, answered) = oneshot::channel();
        let mut questions = self.questions.lock();
        if !questions.has_room(question.asked, &asker) {
            return Err(HostsBusy);
        }
        questions.waiting.insert(question.request, Waiting { asked: question.asked, asker, answer });
        questions.unsent.push(question);
        drop(questions);
        self.wake();
        Ok(answered)
    }

    fn give_up(&self, request: u64) {
        let mut questions = self.questions.lock();
        questions.waiting.remove(&request);
        questions.unsent.retain(|question| question.request != request);
    }

    /// What the agent is to be asked now.
    pub fn take_questions(&self) -> Vec<Question> {
        std::mem::take(&mut self.questions.lock().unsent)
    }

    /// False: nobody asked this, or nobody waits any more.
    pub fn answer(&self, request: u64, reply: Reply) -> bool {
        let mut questions = self.questions.lock();
        if !questions.waiting.get(&request).is_some_and(|waiting| reply.answers(waiting.asked)) {
            return false;
        }
        let waiting = questions.waiting.remove(&request);
        waiting.is_some_and(|waiting| waiting.answer.send(reply).is_ok())
    }

    /// The session is over: nobody will answer.
    pub(super) fn drop_questions(&self) {
        *self.questions.lock() = Questions::default();
    }
}

impl Control {
    /// What a process used, as reported by its host.
    pub async fn usage_history(
        &self,
        caller: &Caller,
        agent: &AgentId,
        key: &ProcessKey,
        range: UsageRange,
    ) -> Result<HostAnswer<Arc<UsageHistory>>, HostsBusy> {
        let told = self.told_by_host(caller, agent, key, Asked::Usage(range)).await?;
        Ok(told.filtered(|reply| if let Reply::Usage(history) = reply { Some(history) } else { None }))
    }

    /// The tail of a process's log, as reported by its host.
    pub async fn log_tail(
        &self,
        caller: &Caller,
        agent: &AgentId,
        key: &ProcessKey,
        query: LogQuery,
    ) -> Result<HostAnswer<Arc<LogTail>>, HostsBusy> {
        let told = self.told_by_host(caller, agent, key, Asked::Log(query)).await?;
        Ok(told.filtered(|reply| if let Reply::Log(tail) = reply { Some(tail) } else { None }))
    }

    async fn told_by_host(
        &self,
        caller: &Caller,
        agent: &AgentId,
        key: &ProcessKey,
        asked: Asked,
    ) -> Result<HostAnswer<Reply>, HostsBusy> {
        let Some(session) = self.inner.sessions.get(agent) else { return Ok(HostAnswer::Offline) };
        let is_answered = match asked {
            Asked::Usage(_) => session.answers_usage(),
            Asked::Log(_) => session.answers_logs(),
        };
        if !is_answered {
            return Ok(HostAnswer::AgentTooOld);
        }
        let wanted = (agent.clone(), key.clone(), asked);
        let queries = &self.inner.host_queries;
        let ask = || self.ask_host(session, key, asked, Asker::new(caller));
        let mut shared = queries.join_or_begin(&wanted, Instant::now(), ask)?;
        let answered = shared.wait_for(Option::is_some).await;
        // An error: the server ends.
        let answer = answered.ok().and_then(|answered| answered.as_ref().map(|answered| answered.answer.clone()));
        Ok(answer.unwrap_or(HostAnswer::NoAnswer))
    }

    /// Asks in its own task: viewers come and go, the query stays until it is answered or times out.
    fn ask_host(
        &self,
        session: Arc<Session>,
        key: &ProcessKey,
        asked: Asked,
        asker: Asker,
    ) -> Result<SharedAnswer, HostsBusy> {
        let queries = &self.inner.host_queries;
        let permit = queries.permit(&asker)?;
        let request = queries.next.fetch_add(1, Ordering::Relaxed);
        let answered = session.ask(Question { request, key: key.clone(), asked }, asker)?;
        let (sender, shared) = watch::channel(None);
        let control = self.clone();
        self.inner.tasks.spawn("host question", async move {
            let answer = control.await_answer(session, request, answered, sender, permit).await;
            if matches!(answer, HostAnswer::Told(Reply::Log(_))) {
                drop(answer);
                control.inner.host_queries.trim_later().await;
            }
        });
        Ok(shared)
    }

    async fn await_answer(
        &self,
        session: Arc<Session>,
        request: u64,
        answered: oneshot::Receiver<Reply>,
        shared: watch::Sender<Option<Answered>>,
        _permit: QuestionPermit,
    ) -> HostAnswer<Reply> {
        let answer = match tokio::time::timeout(DEADLINE, answered).await {
            Ok(Ok(reply)) => HostAnswer::Told(reply),
            Ok(Err(_)) => HostAnswer::Offline,
            Err(_) => HostAnswer::NoAnswer,
        };
        session.give_up(request);
        let at = Instant::now();
        shared.send_replace(Some(Answered { at, answer: answer.clone() }));
        self.inner.host_queries.trim(at);
        answer
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::BootId;
    use proctor_store::SessionOpening;

    use super::super::Greeting;
    use super::*;

    fn wanted(number: usize, range: UsageRange) -> Wanted {
        (format!("agent-{number}").parse().unwrap(), "ns/web".parse().unwrap(), Asked::Usage(range))
    }

    fn session() -> Session {
        let opening = SessionOpening::new("agent-1".parse().unwrap(), String::new());
        Session::new(Greeting::new(opening, BootId::from("boot")), 1)
    }

    fn question(request: u64) -> Question {
        Question { request, key: "ns/web".parse().unwrap(), asked: Asked::Usage(UsageRange::Hour) }
    }

    fn log(request: u64) -> Question {
        Question { asked: Asked::Log(LogQuery::default()), ..question(request) }
    }

    fn asker(app: &str) -> Asker {
        Asker { account: crate::shares::account_of(app, app), is_admin: false }
    }

    fn admin() -> Asker {
        Asker { is_admin: true, ..asker("admin") }
    }

    /// How many of so many questions a session takes.
    fn taken(session: &Session, first: u64, asked: fn(u64) -> Question, asker: &Asker) -> usize {
        (first..first + 20).filter(|request| session.ask(asked(*request), asker.clone()).is_ok()).count()
    }

    fn usage() -> Reply {
        Reply::Usage(Arc::default())
    }

    fn answered(at: Instant) -> Option<Answered> {
        Some(Answered { at, answer: HostAnswer::Told(usage()) })
    }

    /// Whether the host would be asked.
    fn asks(queries: &HostQueries, wanted: &Wanted, now: Instant) -> bool {
        queries.join_or_begin(wanted, now, || Err(HostsBusy)).is_err()
    }

    #[test]
    fn viewers_of_one_process_share_an_answer_until_it_is_old() {
        let (queries, now) = (HostQueries::default(), Instant::now());
        let (hour, week) = (wanted(1, UsageRange::Hour), wanted(1, UsageRange::Week));
        let (sender, shared) = watch::channel(None);
        queries.join_or_begin(&hour, now, || Ok(shared)).unwrap();

        let while_asked = asks(&queries, &hour, now + Duration::from_secs(60));
        sender.send_replace(answered(now + Duration::from_secs(60)));
        let soon = asks(&queries, &hour, now + Duration::from_secs(64));
        let other = asks(&queries, &week, now + Duration::from_secs(64));
        let later = asks(&queries, &hour, now + Duration::from_secs(65));

        assert_eq!([while_asked, soon, other, later], [false, false, true, true]);
    }

    #[test]
    fn a_question_that_nobody_waits_for_any_more_is_asked_again() {
        let (queries, now) = (HostQueries::default(), Instant::now());
        let (sender, shared) = watch::channel(None);
        queries.join_or_begin(&wanted(1, UsageRange::Hour), now, || Ok(shared)).unwrap();

        drop(sender);

        assert!(asks(&queries, &wanted(1, UsageRange::Hour), now));
    }

    #[test]
    fn the_oldest_answers_give_way_and_questions_under_way_stay() {
        let (queries, now) = (HostQueries::default(), Instant::now());
        let at = |number: usize| now + Duration::from_millis(number as u64);
        let (_under_way, pending) = watch::channel(None);
        queries.join_or_begin(&wanted(0, UsageRange::Week), now, || Ok(pending)).unwrap();
        for number in 1..=2 * ANSWERS_MAX {
            let (_, shared) = watch::channel(answered(at(number)));
            queries.join_or_begin(&wanted(number, UsageRange::Week), at(number), || Ok(shared)).unwrap();
        }

        queries.trim(at(2 * ANSWERS_MAX));

        assert_eq!(queries.answers.lock().len(), ANSWERS_MAX + 1);
        let kept = [0, 1, 2 * ANSWERS_MAX].map(|number| !asks(&queries, &wanted(number, UsageRange::Week), now));
        assert_eq!(kept, [true, false, true]);
    }

    #[test]
    fn a_session_has_a_bounded_number_of_questions() {
        let session = session();
        let [ana, bob] = ["ana", "bob"].map(asker);

        assert_eq!((taken(&session, 0, question, &ana), taken(&session, 20, question, &bob)), (6, 2));
        assert_eq!(session.ask(question(99), bob.clone()).unwrap_err(), HostsBusy);
        session.give_up(3);
        let _answered = session.ask(question(100), bob).unwrap();

        assert_eq!(session.take_questions().len(), SESSION_QUESTIONS_MAX);
    }

    #[test]
    fn readers_leave_questions_to_an_administrator_on_a_session_and_on_the_server() {
        let (session, queries) = (session(), HostQueries::default());
        for (first, app) in [(0, "ana"), (20, "bob")] {
            taken(&session, first, log, &asker(app));
            taken(&session, first + 100, question, &asker(app));
        }
        let permits = |asker: &Asker| std::iter::from_fn(|| queries.permit(asker).ok()).collect::<Vec<_>>();

        let of_ana = permits(&asker("ana"));
        let of_bob = permits(&asker("bob"));
        let of_admin = permits(&admin());

        assert_eq!((taken(&session, 300, log, &admin()), taken(&session, 400, question, &admin())), (2, 0));
        assert_eq!([of_ana.len(), of_bob.len(), of_admin.len()], [128, 128, 32]);
        drop((of_ana, of_bob, of_admin));
        assert!(queries.under_way.lock().is_empty());
    }

    #[test]
    fn logs_leave_half_of_the_questions_of_a_session_to_usage() {
        let session = session();
        let [ana, bob] = ["ana", "bob"].map(asker);

        let logs = taken(&session, 0, log, &ana) + taken(&session, 20, log, &bob);
        let usage = taken(&session, 40, question, &ana) + taken(&session, 60, question, &bob);

        assert_eq!(logs, SESSION_LOG_QUESTIONS_MAX);
        assert_eq!(usage, SESSION_QUESTIONS_MAX - SESSION_LOG_QUESTIONS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_forgotten_when_it_is_old_without_another_answer() {
        let (queries, now) = (HostQueries::default(), Instant::now());
        let log = Reply::Log(Arc::default());
        let (_, shared) = watch::channel(Some(Answered { at: now, answer: HostAnswer::Told(log) }));
        let wanted = ("agent-1".parse().unwrap(), "ns/web".parse().unwrap(), Asked::Log(LogQuery::default()));
        queries.join_or_begin(&wanted, now, || Ok(shared)).unwrap();
        queries.trim(now);
        assert_eq!(queries.answers.lock().len(), 1);

        queries.trim_later().await;

        assert_eq!(queries.answers.lock().len(), 0);
    }

    #[test]
    fn an_answer_counts_once_and_only_where_it_was_asked_for() {
        let session = session();
        let mut answered = session.ask(question(7), asker("ana")).unwrap();

        let to_another_question = session.answer(7, Reply::Log(Arc::default()));
        let taken = [6, 7, 7].map(|request| session.answer(request, usage()));

        assert!(!to_another_question);
        assert_eq!(taken, [false, true, false]);
        assert_eq!(answered.try_recv().unwrap(), usage());
    }
}

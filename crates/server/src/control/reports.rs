//! Agents' process reports on their way to the store.
//!
//! Promised: reports of many agents share a write. An agent is not read from while its report is written, unless a
//! call to many agents is in progress (see `rush`): then outcomes go first. Reports wait until the rush is over, at most
//! [`WAIT_MAX`], and delay nothing else from their agents, up to [`WAITING_MAX`] observations per agent. An agent with
//! more is held up, with the outcomes that it sends next, only until the writer has come to its reports.
//! Absent: what need not be written (see `usage`). What a full store cannot take is dropped: the next report brings
//! newer data.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::ProcessKey;
use proctor_runtime::chain;
use proctor_store::{AgentReport, Observation};
use tokio::sync::{Notify, oneshot};

use super::usage::ToStore;
use super::{Control, Result, Session};

/// Well beyond the time of a call to a large fleet.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Observations of one agent that wait.
const WAITING_MAX: usize = 256;
/// Observations in one write, unless one report has more.
const BATCH_MAX: usize = 1000;
/// How often a store that takes nothing is complained of.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Reports {
    waiting: Mutex<Waiting>,
    due: Notify,
    /// Of those that were waited for, some are not waiting any more.
    written: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The oldest first.
    reports: VecDeque<Report>,
    /// How many of them somebody waits for.
    awaited: usize,
    /// Agents that have left as much as they may.
    held_up: usize,
}

/// Counts an agent among those that are held up.
struct HeldUp<'a>(&'a Reports);

impl<'a> HeldUp<'a> {
    fn new(reports: &'a Reports) -> Self {
        reports.waiting.lock().held_up += 1;
        reports.due.notify_one();
        Self(reports)
    }
}

impl Drop for HeldUp<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().held_up -= 1;
    }
}

#[derive(Debug)]
struct Report {
    session: Arc<Session>,
    observations: Vec<Observation>,
    left_at: Instant,
    /// Dropped when it is written, or never will be.
    under_way: Option<oneshot::Sender<()>>,
}

impl Reports {
    fn add(&self, report: Report) {
        report.session.observations_waiting.fetch_add(report.observations.len(), Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        waiting.awaited += usize::from(report.under_way.is_some());
        waiting.reports.push_back(report);
    }

    /// Wakes the writer where reports need not wait.
    pub(super) fn tell_due(&self, is_rush: bool, now: Instant) {
        if self.waiting.lock().is_due(is_rush, now) {
            self.due.notify_one();
        }
    }

    /// The oldest that wait, as many as fit into one write.
    fn take(&self) -> Vec<Report> {
        let mut waiting = self.waiting.lock();
        let mut count = 0;
        let fits = |report: &&Report| {
            count += report.observations.len();
            count <= BATCH_MAX
        };
        let fitting = waiting.reports.iter().take_while(fits).count().max(1).min(waiting.reports.len());
        let taken: Vec<_> = waiting.reports.drain(..fitting).collect();
        waiting.awaited -= taken.iter().filter(|report| report.under_way.is_some()).count();
        if waiting.reports.is_empty() {
            waiting.reports = VecDeque::new();
        }
        taken
    }

    /// These are written, or never will be.
    fn done(&self, reports: Vec<Report>) {
        for Report { session, observations, .. } in reports {
            session.observations_waiting.fetch_sub(observations.len(), Ordering::Relaxed);
        }
        self.written.notify_waiters();
    }

    /// Returns when the session may leave another report.
    async fn room(&self, session: &Session) {
        loop {
            let written = self.written.notified();
            if session.observations_waiting.load(Ordering::Relaxed) < WAITING_MAX {
                return;
            }
            let _held_up = HeldUp::new(self);
            written.await;
        }
    }
}

impl Waiting {
    fn is_due(&self, is_rush: bool, now: Instant) -> bool {
        let has_waited = |report: &Report| now.saturating_duration_since(report.left_at) >= WAIT_MAX;
        let is_waited_for = self.awaited > 0 || self.held_up > 0;
        let is_due = |oldest| is_waited_for || !is_rush || has_waited(oldest);
        self.reports.front().is_some_and(is_due)
    }
}

impl Control {
    /// Whether a call to many agents is in progress.
    pub(super) fn is_rush(&self) -> bool {
        self.inner.rush.is_on(self.inner.dispatch.lock().rush_count())
    }

    /// Writes a report; in a rush it is only left to be written.
    pub(super) async fn leave_report(&self, session: &Session, observations: Vec<Observation>) {
        // Of one that a newer session has replaced the store takes nothing.
        let current = self.inner.sessions.get(session.agent()).filter(|current| current.epoch() == session.epoch());
        let Some(current) = current else { return };
        self.inner.reports.room(session).await;
        let (is_rush, now) = (self.is_rush(), Instant::now());
        let (under_way, written) = (!is_rush).then(oneshot::channel).unzip();
        self.inner.reports.add(Report { session: current, observations, left_at: now, under_way });
        self.inner.reports.tell_due(is_rush, now);
        if let Some(written) = written {
            let _ = written.await;
        }
    }

    pub(super) async fn write_reports(self) {
        let reports = &self.inner.reports;
        let mut complained_at: Option<Instant> = None;
        loop {
            reports.due.notified().await;
            loop {
                let (is_rush, now) = (self.is_rush(), Instant::now());
                if !reports.waiting.lock().is_due(is_rush, now) {
                    break;
                }
                let taken = reports.take();
                if let Err(error) = self.write(&taken).await
                    && complained_at.is_none_or(|at| now.saturating_duration_since(at) >= COMPLAINT_PERIOD)
                {
                    complained_at = Some(now);
                    tracing::warn!(agents = taken.len(), error = %chain(&error), "cannot store observations");
                }
                reports.done(taken);
            }
        }
    }

    async fn write(&self, reports: &[Report]) -> Result<()> {
        // Again: an outcome that was stored meanwhile has changed what the store has.
        let sift = |(session, observations): (Arc<Session>, Vec<Observation>)| {
            let to_store = session.usage().sift(observations);
            (!to_store.observations.is_empty()).then_some((session, to_store))
        };
        let to_store: Vec<_> = newest_of(reports).into_iter().filter_map(sift).collect();
        let report = |(session, to_store): &(Arc<Session>, ToStore)| AgentReport {
            agent: session.agent().clone(),
            epoch: session.epoch(),
            observations: to_store.observations.clone(),
        };
        let kept = match self.inner.store.observe_all(to_store.iter().map(report).collect()).await {
            Ok(kept) => kept,
            Err(error) => {
                to_store.iter().for_each(|(session, to_store)| session.usage().not_stored(to_store));
                return Err(error.into());
            }
        };
        for ((session, to_store), is_kept) in to_store.into_iter().zip(kept) {
            session.usage().stored(to_store, &is_kept);
        }
        Ok(())
    }
}

/// The newest observation of each process, by session: what a session said before is not compared with what the store has.
fn newest_of(reports: &[Report]) -> Vec<(Arc<Session>, Vec<Observation>)> {
    let mut sessions: Vec<(Arc<Session>, Vec<Observation>)> = Vec::new();
    let mut index_of: HashMap<*const Session, usize> = HashMap::new();
    for Report { session, observations, .. } in reports {
        let index = *index_of.entry(Arc::as_ptr(session)).or_insert(sessions.len());
        if index == sessions.len() {
            sessions.push((session.clone(), Vec::new()));
        }
        sessions[index].1.extend(observations.iter().cloned());
    }
    for (_, observations) in &mut sessions {
        let mut seen: HashSet<ProcessKey> = HashSet::with_capacity(observations.len());
        observations.reverse();
        observations.retain(|observation| seen.insert(observation.key.clone()));
        observations.reverse();
    }
    sessions
}

#[cfg(test)]
mod tests {
    use proctor_model::{BootId, Snapshot};
    use proctor_store::SessionOpening;

    use super::*;
    use crate::control::Greeting;

    fn session(agent: &str) -> Arc<Session> {
        let opening = SessionOpening::new(agent.parse().unwrap(), "key");
        Arc::new(Session::new(Greeting::new(opening, BootId::from("boot")), 1))
    }

    fn report(session: &Arc<Session>, observations: usize, left_at: Instant) -> Report {
        let observation = Observation { key: "ns/p".parse().unwrap(), snapshot: Snapshot::default() };
        Report { session: session.clone(), observations: vec![observation; observations], left_at, under_way: None }
    }

    #[test]
    fn in_a_rush_reports_wait_for_its_end_but_not_for_long() {
        let (reports, session, now) = (Reports::default(), session("a"), Instant::now());
        let is_due = |is_rush, at| reports.waiting.lock().is_due(is_rush, at);
        assert!(!is_due(false, now), "there is none");

        reports.add(report(&session, BATCH_MAX, now));
        reports.add(report(&session, 1, now + WAIT_MAX));

        assert!(is_due(false, now));
        assert!(!is_due(true, now));
        assert!(is_due(true, now + WAIT_MAX));
        reports.take();
        assert!(!is_due(true, now + WAIT_MAX), "each waits for its own time");
        assert!(is_due(true, now + 2 * WAIT_MAX));
    }

    #[test]
    fn of_a_session_the_newest_observation_of_each_process_is_written() {
        let (one, other) = (session("a"), session("b"));
        let of = |session: &Arc<Session>, keys: &[&str], reported_at| {
            let snapshot = Snapshot { reported_at, ..Snapshot::default() };
            let observed = |key: &&str| Observation { key: key.parse().unwrap(), snapshot: snapshot.clone() };
            Report { observations: keys.iter().map(observed).collect(), ..report(session, 0, Instant::now()) }
        };

        let newest = newest_of(&[of(&one, &["ns/p", "ns/q"], 1), of(&other, &["ns/p"], 2), of(&one, &["ns/p"], 3)]);

        let told = |(session, observations): &(Arc<Session>, Vec<Observation>)| {
            let each = |seen: &Observation| (seen.key.to_string(), seen.snapshot.reported_at);
            (session.agent().to_string(), observations.iter().map(each).collect::<Vec<_>>())
        };
        let expected = [("a", vec![("ns/q", 1), ("ns/p", 3)]), ("b", vec![("ns/p", 2)])];
        let expected = expected.map(|(agent, seen)| {
            (agent.to_owned(), seen.into_iter().map(|(key, at)| (key.to_owned(), at)).collect::<Vec<_>>())
        });
        assert_eq!(newest.iter().map(told).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_waited_for_does_not_wait_for_the_end_of_a_rush_that_came_later() {
        let (reports, session, now) = (Reports::default(), session("a"), Instant::now());
        let (under_way, mut written) = oneshot::channel();

        reports.add(Report { under_way: Some(under_way), ..report(&session, BATCH_MAX, now) });
        reports.add(report(&session, 1, now));

        assert!(reports.waiting.lock().is_due(true, now));
        drop(reports.take());
        assert!(!reports.waiting.lock().is_due(true, now), "nobody waits for the other");
        assert_eq!(written.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn a_write_takes_the_oldest_reports_that_fit() {
        let (reports, now) = (Reports::default(), Instant::now());
        let sizes = [BATCH_MAX - 1, 1, 1, BATCH_MAX + 1, 2];
        for (index, size) in sizes.into_iter().enumerate() {
            reports.add(report(&session(&format!("a-{index}")), size, now));
        }

        let taken: Vec<Vec<String>> = std::iter::repeat_with(|| reports.take())
            .take_while(|taken| !taken.is_empty())
            .map(|taken| taken.iter().map(|report| report.session.agent().to_string()).collect())
            .collect();

        assert_eq!(taken, [vec!["a-0", "a-1"], vec!["a-2"], vec!["a-3"], vec!["a-4"]]);
    }

    #[tokio::test]
    async fn an_agent_that_reports_much_waits_until_some_of_it_is_written() {
        let (reports, session, now) = (Reports::default(), session("a"), Instant::now());
        reports.add(report(&session, WAITING_MAX - 1, now));
        reports.room(&session).await;
        reports.add(report(&session, 1, now));

        let mut room = Box::pin(reports.room(&session));
        assert!(futures::poll!(&mut room).is_pending());
        assert!(reports.waiting.lock().is_due(true, now), "its outcomes wait behind what it reports");
        reports.done(reports.take());

        room.await;
        assert_eq!(reports.waiting.lock().held_up, 0);
    }
}

//! Reads the log of a process on request of the server.
//!
//! Promised: the driver waits for no file; logs are read on separate threads, of which there are at most
//! [`READS_MAX`] plus [`HUNG_MAX`], and [`PROCESS_READS_MAX`] per process; half of the reads are reserved for
//! processes whose log was read before, so that logs on an unresponsive mount cost other logs little and supervision
//! nothing; every request is answered, even for a log that cannot be read; at most one tail waits for the link to
//! take it, which has its own bound for those it has taken.
//! Absent: permissions, which the server checks; how a log is opened (see `log_file`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{LogQuery, LogState, LogTail, ProcessKey};
use proctor_wire::FromAgent;
use tokio::sync::mpsc;

use super::Driver;
use super::usage::answer;
use crate::log_file::{LogFile, path_of};

/// Less than the server waits for an answer.
const LIMIT: Duration = Duration::from_secs(3);
/// Within their time.
const READS_MAX: usize = 8;
/// For processes whose log is not known to be readable.
const UNKNOWN_READS_MAX: usize = READS_MAX / 2;
const PROCESS_READS_MAX: usize = 2;
/// Hung threads in addition to those; more count as reads.
const HUNG_MAX: usize = 16;
/// Processes known to have been read; beyond that, this starts over.
const KNOWN_MAX: usize = 1024;
const NO_ANSWER: &str = "the file system does not answer";
const TOO_MANY: &str = "too many logs are being read at the moment";

/// The reads of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct LogReads {
    reads: Arc<Mutex<Reads>>,
    /// Whether a tail may wait for the link to take it. Those that it has taken are bounded there (`link::queue`).
    is_unsent: Arc<Mutex<bool>>,
}

#[derive(Debug, Default)]
struct Reads {
    under_way: HashMap<ProcessKey, usize>,
    /// Those that did not return in time, and still have not.
    hung: HashMap<ProcessKey, usize>,
    /// Whose log was read in time when it was read last.
    known: HashSet<ProcessKey>,
}

impl Reads {
    /// An error: the answer instead.
    fn begin(&mut self, key: &ProcessKey) -> Result<(), (LogState, &'static str)> {
        if self.hung.contains_key(key) {
            return Err((LogState::Unreadable, NO_ANSWER));
        }
        let count = |reads: &HashMap<ProcessKey, usize>| reads.values().sum::<usize>();
        let all = count(&self.under_way) + count(&self.hung).saturating_sub(HUNG_MAX);
        let max = if self.known.contains(key) { READS_MAX } else { UNKNOWN_READS_MAX };
        if all >= max || self.under_way.get(key).is_some_and(|own| *own >= PROCESS_READS_MAX) {
            return Err((LogState::Busy, TOO_MANY));
        }
        *self.under_way.entry(key.clone()).or_default() += 1;
        Ok(())
    }

    fn end(&mut self, key: &ProcessKey) {
        subtract(&mut self.under_way, key);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key.clone());
    }

    fn hang(&mut self, key: &ProcessKey) {
        subtract(&mut self.under_way, key);
        *self.hung.entry(key.clone()).or_default() += 1;
        self.known.remove(key);
    }

    fn come_back(&mut self, key: &ProcessKey) {
        subtract(&mut self.hung, key);
    }
}

fn subtract(reads: &mut HashMap<ProcessKey, usize>, key: &ProcessKey) {
    if let Some(count) = reads.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            reads.remove(key);
        }
    }
}

impl LogReads {
    /// Declines a tail if the previous one may still be waiting: on a slow link, text would delay what matters.
    fn send(&self, link: &mpsc::Sender<FromAgent>, request: u64, mut tail: LogTail) {
        let mut is_unsent = self.is_unsent.lock();
        *is_unsent &= link.capacity() < link.max_capacity();
        if !tail.bytes.is_empty() && std::mem::replace(&mut *is_unsent, true) {
            tail = LogTail::none(LogState::Busy, tail.path, "the link is behind");
        }
        answer(link, FromAgent::LogTail { request, tail });
    }
}

impl Driver {
    pub(super) fn query_log(&mut self, request: u64, key: ProcessKey, query: LogQuery) {
        let Some(link) = self.outbox.link().cloned() else { return };
        let log_reads = self.log_reads.clone();
        let answer = move |tail| log_reads.send(&link, request, tail);
        let file = match self.log_file(&key) {
            Ok(file) => file,
            Err(none) => return answer(none),
        };
        let path = file.path();
        let reads = self.log_reads.reads.clone();
        if let Err((state, problem)) = reads.lock().begin(&key) {
            return answer(LogTail::none(state, path, problem));
        }
        self.workers.spawn("log", async move {
            let unreadable = move |problem: &str| LogTail::none(LogState::Unreadable, path, problem);
            let mut reading = tokio::task::spawn_blocking(move || file.read(&query));
            match tokio::time::timeout(LIMIT, &mut reading).await {
                Ok(read) => {
                    reads.lock().end(&key);
                    answer(read.unwrap_or_else(|error| {
                        tracing::error!(%error, process = %key, "cannot read log");
                        unreadable("the agent failed to read it")
                    }));
                }
                Err(_) => {
                    reads.lock().hang(&key);
                    answer(unreadable(NO_ANSWER));
                    let _ = reading.await;
                    reads.lock().come_back(&key);
                }
            }
        });
    }

    /// The log of a process, or the answer if there is none to read, as far as memory tells.
    fn log_file(&self, key: &ProcessKey) -> Result<LogFile, LogTail> {
        let none = |state| LogTail::none(state, "", "");
        let process = self.processes.get(key).ok_or_else(|| none(LogState::NotRegistered))?;
        let identity = process.spec().identity.clone();
        let path = path_of(&identity).ok_or_else(|| none(LogState::NoPath))?;
        let policy = self.policy();
        if let Some(policy) = &policy {
            policy.check_log(&key.namespace, &identity).map_err(|refusal| {
                LogTail::none(LogState::Forbidden, path.display().to_string(), refusal.to_string())
            })?;
        }
        let policy = policy.map(|policy| (policy, key.namespace.clone()));
        Ok(LogFile { host: self.host.clone(), identity, path, policy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ProcessKey {
        format!("ns/p{number}").parse().unwrap()
    }

    #[test]
    fn logs_that_hang_leave_half_of_the_reads_to_processes_that_were_read_before() {
        let (mut reads, known) = (Reads::default(), key(1000));
        reads.begin(&known).unwrap();
        reads.end(&known);
        let busy = Err((LogState::Busy, TOO_MANY));

        // Until no more threads may hang.
        let mut hanging = 0;
        while reads.begin(&key(hanging)).is_ok() {
            reads.hang(&key(hanging));
            hanging += 1;
        }

        assert_eq!(hanging, HUNG_MAX + UNKNOWN_READS_MAX);
        assert_eq!(reads.begin(&key(0)), Err((LogState::Unreadable, NO_ANSWER)));
        assert_eq!(reads.begin(&key(hanging)), busy);
        assert_eq!([reads.begin(&known), reads.begin(&known), reads.begin(&known)], [Ok(()), Ok(()), busy]);
        (0..hanging).for_each(|number| reads.come_back(&key(number)));
        assert_eq!((reads.begin(&key(0)), reads.hung.len()), (Ok(()), 0));
    }

    #[tokio::test]
    async fn one_tail_at_most_waits_on_a_slow_link() {
        let (reads, (link, mut sent)) = (LogReads::default(), mpsc::channel(64));
        let tail = || LogTail { bytes: b"words".to_vec(), ..LogTail::default() };
        let states = |sent: &mut mpsc::Receiver<FromAgent>| {
            let next = || {
                let FromAgent::LogTail { tail, .. } = sent.try_recv().ok()? else { panic!("only tails are sent") };
                Some((tail.state, tail.bytes.len()))
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        };

        for request in 0..3 {
            reads.send(&link, request, tail());
        }
        reads.send(&link, 3, LogTail::none(LogState::Missing, "", ""));
        let slow = states(&mut sent);
        reads.send(&link, 4, tail());

        let busy = (LogState::Busy, 0);
        assert_eq!(slow, [(LogState::Read, 5), busy, busy, (LogState::Missing, 0)]);
        assert_eq!(states(&mut sent), [(LogState::Read, 5)]);
    }
}

//! Reads and writes the files of the week, in order and off the driver's thread.
//!
//! Promised: jobs run one after the other, so a removed file does not come back; at most [`JOBS_MAX`] wait, and a
//! disk that hangs costs the history and nothing else. A removal that was not carried out is made up for; every query
//! is answered, even for a file that cannot be read.
//! Absent: retries of anything else.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_host::Host;
use proctor_model::{ProcessKey, UsageHistory, UsageKept, UsageRange};
use proctor_runtime::Tasks;
use tokio::sync::mpsc;

use super::files::{WeekFiles, Written};
use super::week::{WeekStep, of_last_week};
use super::{History, number_at};

const JOBS_MAX: usize = 1024;
/// A thousand files take milliseconds; a hanging disk is given up after this.
const JOB_LIMIT: Duration = Duration::from_secs(30);
/// How long the end of the agent waits for a job.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How often files of unknown processes are looked for.
const RETAIN_PERIOD: Duration = Duration::from_secs(6 * 3600);
/// Between two lines of the log about jobs that failed.
const WARNING_PERIOD: Duration = Duration::from_secs(60);

/// Gets the answer of [`HistoryJob::Read`].
pub(crate) type Answer = Box<dyn FnOnce(UsageHistory) + Send>;

enum HistoryJob {
    /// Only these processes are known.
    Retain {
        keys: HashSet<ProcessKey>,
        now: u64,
    },
    Remove(ProcessKey),
    Write {
        steps: Vec<(ProcessKey, Vec<WeekStep>)>,
        now: u64,
    },
    Read {
        key: ProcessKey,
        unwritten: Vec<WeekStep>,
        now: u64,
        answer: Answer,
    },
}

impl HistoryJob {
    fn removes(&self) -> bool {
        match self {
            Self::Retain { .. } | Self::Remove(_) => true,
            Self::Write { .. } | Self::Read { .. } => false,
        }
    }
}

/// Jobs that failed, one line a minute.
#[derive(Debug, Default)]
struct Failures {
    warned: Option<tokio::time::Instant>,
    since: u64,
}

impl Failures {
    fn warn(&mut self, what: &str, error: &str) {
        self.since += 1;
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING_PERIOD) {
            tracing::warn!(what, error, failures = self.since, "usage history is incomplete");
            *self = Self { warned: Some(tokio::time::Instant::now()), since: 0 };
        }
    }
}

impl std::fmt::Debug for HistoryJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Retain { .. } => "Retain",
            Self::Remove(_) => "Remove",
            Self::Write { .. } => "Write",
            Self::Read { .. } => "Read",
        })
    }
}

#[derive(Debug)]
pub(crate) struct Keeper {
    files: Arc<Mutex<WeekFiles>>,
    jobs: mpsc::Sender<HistoryJob>,
    /// Until it runs.
    waiting: Option<mpsc::Receiver<HistoryJob>>,
    /// A removal was not carried out.
    has_missed_removal: Arc<AtomicBool>,
    retained: Option<tokio::time::Instant>,
}

impl Keeper {
    pub(crate) fn new(dir: PathBuf) -> Self {
        let (jobs, waiting) = mpsc::channel(JOBS_MAX);
        let files = Arc::new(Mutex::new(WeekFiles::new(dir)));
        Self { files, jobs, waiting: Some(waiting), has_missed_removal: Arc::default(), retained: None }
    }

    /// Carries out jobs until `tasks` end.
    pub(crate) fn start(&mut self, host: &Host, tasks: &Tasks) {
        let Some(mut jobs) = self.waiting.take() else { return };
        let (host, files, has_missed_removal) = (host.clone(), self.files.clone(), self.has_missed_removal.clone());
        // The path in the name gives the jobs a lane of their own disk.
        let name = format!("usage history {}", files.lock().dir().display());
        let mut failures = Failures::default();
        tasks.spawn("usage history", async move {
            while let Some(job) = jobs.recv().await {
                let (files, what, removes) = (files.clone(), format!("{job:?}"), job.removes());
                let done = host.blocking(&name, JOB_LIMIT, move || carry_out(&mut files.lock(), job)).await;
                if removes && !matches!(done, Some(Ok(()))) {
                    has_missed_removal.store(true, Ordering::Relaxed);
                }
                match done {
                    Some(Ok(())) => {}
                    Some(Err(error)) => failures.warn(&what, &error.to_string()),
                    None => failures.warn(&what, "the disk does not answer"),
                }
            }
        });
    }

    pub(crate) fn remove(&mut self, key: ProcessKey) {
        if self.jobs.try_send(HistoryJob::Remove(key)).is_err() {
            self.has_missed_removal.store(true, Ordering::Relaxed);
        }
    }

    /// Where [`Self::must_retain`]; `now` in Unix seconds.
    pub(crate) fn retain(&mut self, keys: impl Iterator<Item = ProcessKey>, now: u64) {
        let is_missed = self.jobs.try_send(HistoryJob::Retain { keys: keys.collect(), now }).is_err();
        self.has_missed_removal.store(is_missed, Ordering::Relaxed);
        self.retained = Some(tokio::time::Instant::now());
    }

    /// At the start, where a removal was missed, and now and then: files of unknown processes age out.
    pub(crate) fn must_retain(&self) -> bool {
        let is_due = self.retained.is_none_or(|at| at.elapsed() >= RETAIN_PERIOD);
        is_due || self.has_missed_removal.load(Ordering::Relaxed)
    }

    /// Hands out finished steps; with a full queue they wait in memory, within its bound.
    pub(crate) fn write(&self, history: &mut History, now: u64) {
        let Ok(permit) = self.jobs.try_reserve() else { return };
        let steps = history.take_finished(now);
        if !steps.is_empty() {
            permit.send(HistoryJob::Write { steps, now });
        }
    }

    /// If it cannot be queried now, there is no answer: the requester waits for a limited time.
    pub(crate) fn read(&self, history: &History, key: &ProcessKey, now: u64, answer: Answer) {
        let (key, unwritten) = (key.clone(), history.unwritten(key));
        let _ = self.jobs.try_send(HistoryJob::Read { key, unwritten, now, answer });
    }

    /// On shutdown: unfinished steps are written as far as they got.
    pub(crate) fn write_all(&self, history: &mut History, now: u64) {
        // A job in progress has the files, and a hanging one keeps them.
        let Some(mut files) = self.files.try_lock_for(END_LIMIT) else { return };
        if let Err(error) = write(&mut files, history.take_all(), now) {
            tracing::warn!(%error, "usage history is incomplete");
        }
    }
}

fn carry_out(files: &mut WeekFiles, job: HistoryJob) -> io::Result<()> {
    match job {
        HistoryJob::Retain { keys, now } => files.retain(&keys, now),
        HistoryJob::Remove(key) => files.remove(&key),
        HistoryJob::Write { steps, now } => write(files, steps, now),
        HistoryJob::Read { key, unwritten, now, answer } => {
            let (history, failed) = week(files, &key, unwritten, now);
            answer(history);
            failed.map_or(Ok(()), Err)
        }
    }
}

/// One file that cannot be written does not affect the others; the first error is reported.
fn write(files: &mut WeekFiles, steps: Vec<(ProcessKey, Vec<WeekStep>)>, now: u64) -> io::Result<()> {
    let current = number_at(now);
    let mut first = files.begin_turn(current).err();
    let mut without_room: usize = 0;
    for (key, steps) in steps {
        match files.write(&key, &steps) {
            Ok(Written::Yes) => {}
            Ok(Written::NoRoom) => without_room += 1,
            Err(error) => first = first.or(Some(error)),
        }
    }
    if without_room > 0 {
        tracing::debug!(without_room, "usage history of some processes is not kept");
    }
    first.map_or(Ok(()), Err)
}

/// Of a file that cannot be read there are the steps in memory, and the error.
fn week(files: &WeekFiles, key: &ProcessKey, unwritten: Vec<WeekStep>, now: u64) -> (UsageHistory, Option<io::Error>) {
    let (written, failed) = match files.read(key, now) {
        Ok(written) => (written, None),
        Err(error) => (None, Some(error)),
    };
    let is_kept = written.is_some() || (failed.is_none() && files.has_room());
    let kept = if is_kept { UsageKept::Kept } else { UsageKept::NotKept };
    let mut steps = written.unwrap_or_default();
    for step in of_last_week(unwritten, now) {
        match steps.iter_mut().find(|written| written.number == step.number) {
            Some(written) => *written = written.merged(step),
            None => steps.push(step),
        }
    }
    let points = of_last_week(steps, now).iter().map(WeekStep::point).collect();
    (UsageHistory { kept, step_secs: UsageRange::Week.step_min(), points }, failed)
}

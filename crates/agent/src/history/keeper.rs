//! Who reads and writes the files of the week, in order and away from the driver.
//!
//! Promised: jobs are carried out one after the other, so a file that was removed does not come back; at most
//! [`JOBS_MAX`] wait, and a disk that hangs costs the history and nothing else. Absent: retries.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_host::Host;
use proctor_model::{ProcessKey, UsageHistory, UsageKept, UsageRange};
use proctor_runtime::Tasks;
use tokio::sync::mpsc;

use super::History;
use super::files::{WeekFiles, Written};
use super::week::{WeekStep, of_last_week};

const JOBS_MAX: usize = 1024;
/// A thousand files take milliseconds; a disk that hangs is given up after this.
const JOB_LIMIT: Duration = Duration::from_secs(30);

/// Gets the answer of [`HistoryJob::Read`].
pub(crate) type Answer = Box<dyn FnOnce(UsageHistory) + Send>;

enum HistoryJob {
    /// Only these processes are known.
    Retain(HashSet<ProcessKey>),
    Remove(ProcessKey),
    Write(Vec<(ProcessKey, Vec<WeekStep>)>),
    Read {
        key: ProcessKey,
        unwritten: Vec<WeekStep>,
        now: u64,
        answer: Answer,
    },
}

impl std::fmt::Debug for HistoryJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Retain(_) => "Retain",
            Self::Remove(_) => "Remove",
            Self::Write(_) => "Write",
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
    /// A removal found no room in the queue.
    has_missed_removal: bool,
}

impl Keeper {
    pub(crate) fn new(dir: PathBuf) -> Self {
        let (jobs, waiting) = mpsc::channel(JOBS_MAX);
        let files = Arc::new(Mutex::new(WeekFiles::new(dir)));
        Self { files, jobs, waiting: Some(waiting), has_missed_removal: false }
    }

    /// Carries out jobs until `tasks` end.
    pub(crate) fn start(&mut self, host: &Host, tasks: &Tasks) {
        let Some(mut jobs) = self.waiting.take() else { return };
        let (host, files) = (host.clone(), self.files.clone());
        tasks.spawn("usage history", async move {
            while let Some(job) = jobs.recv().await {
                let (files, what) = (files.clone(), format!("{job:?}"));
                let done = host.blocking("usage history", JOB_LIMIT, move || carry_out(&mut files.lock(), job)).await;
                match done {
                    Some(Ok(())) => {}
                    Some(Err(error)) => tracing::warn!(what, %error, "usage history is incomplete"),
                    None => tracing::warn!(what, "usage history is incomplete: the disk does not answer"),
                }
            }
        });
    }

    pub(crate) fn remove(&mut self, key: ProcessKey) {
        self.has_missed_removal |= self.jobs.try_send(HistoryJob::Remove(key)).is_err();
    }

    /// At the start, and where a removal was missed.
    pub(crate) fn retain(&mut self, keys: impl Iterator<Item = ProcessKey>) {
        self.has_missed_removal = self.jobs.try_send(HistoryJob::Retain(keys.collect())).is_err();
    }

    pub(crate) fn has_missed_removal(&self) -> bool {
        self.has_missed_removal
    }

    /// Hands out what is over; with a full queue it waits in memory, as far as that is bounded.
    pub(crate) fn write(&self, history: &mut History, now: u64) {
        let Ok(permit) = self.jobs.try_reserve() else { return };
        let steps = history.take_finished(now);
        if !steps.is_empty() {
            permit.send(HistoryJob::Write(steps));
        }
    }

    /// Where it cannot be asked now, nobody answers: whoever asked waits for a limited time.
    pub(crate) fn read(&self, history: &History, key: &ProcessKey, now: u64, answer: Answer) {
        let (key, unwritten) = (key.clone(), history.unwritten(key));
        let _ = self.jobs.try_send(HistoryJob::Read { key, unwritten, now, answer });
    }

    /// At the end of the agent: what is not over is written as far as it went.
    pub(crate) fn write_all(&self, history: &mut History) {
        // A job that hangs has the files.
        let Some(mut files) = self.files.try_lock() else { return };
        if let Err(error) = write(&mut files, history.take_all()) {
            tracing::warn!(%error, "usage history is incomplete");
        }
    }
}

fn carry_out(files: &mut WeekFiles, job: HistoryJob) -> io::Result<()> {
    match job {
        HistoryJob::Retain(keys) => files.retain(&keys),
        HistoryJob::Remove(key) => files.remove(&key),
        HistoryJob::Write(steps) => write(files, steps),
        HistoryJob::Read { key, unwritten, now, answer } => {
            answer(week(files, &key, unwritten, now)?);
            Ok(())
        }
    }
}

/// One file that cannot be written does not keep the others from it; the first error is told.
fn write(files: &mut WeekFiles, steps: Vec<(ProcessKey, Vec<WeekStep>)>) -> io::Result<()> {
    let mut first = None;
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

fn week(files: &WeekFiles, key: &ProcessKey, unwritten: Vec<WeekStep>, now: u64) -> io::Result<UsageHistory> {
    let written = files.read(key, now)?;
    let kept = if written.is_none() && files.is_full() { UsageKept::NotKept } else { UsageKept::Kept };
    let mut steps = written.unwrap_or_default();
    for step in of_last_week(unwritten, now) {
        match steps.iter_mut().find(|written| written.number == step.number) {
            Some(written) => *written = written.merged(step),
            None => steps.push(step),
        }
    }
    let points = of_last_week(steps, now).iter().map(WeekStep::point).collect();
    Ok(UsageHistory { kept, step_secs: UsageRange::Week.step_min(), points })
}

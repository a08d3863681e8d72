//! Reading the log of a process for whoever asks the server for it.
//!
//! Promised: the driver waits for no file; logs are read on threads of their own, [`READS_MAX`] at most and one for a
//! log that hangs, so that a log on a mount that does not answer costs other logs little and supervision nothing;
//! whoever asks is answered, also about a log that cannot be read. Absent: who may ask, which the server decides; how a
//! log is opened (see `log_file`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{LogQuery, LogState, LogTail, ProcessKey};
use proctor_wire::FromAgent;
use tokio::sync::Semaphore;

use super::Driver;
use super::usage::answer;
use crate::log_file::{LogFile, path_of};

/// Less than the server waits for an answer.
const LIMIT: Duration = Duration::from_secs(3);
const READS_MAX: usize = 8;
const NO_ANSWER: &str = "the file system does not answer";

#[derive(Debug)]
pub(super) struct LogReads {
    permits: Arc<Semaphore>,
    /// Those that did not come back in time, and have not yet.
    hung: Arc<Mutex<HashSet<ProcessKey>>>,
}

impl Default for LogReads {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(READS_MAX)), hung: Arc::default() }
    }
}

impl Driver {
    pub(super) fn query_log(&mut self, request: u64, key: ProcessKey, query: LogQuery) {
        let Some(link) = self.outbox.link().cloned() else { return };
        let answer = move |tail| answer(&link, FromAgent::LogTail { request, tail });
        let file = match self.log_file(&key) {
            Ok(file) => file,
            Err(none) => return answer(none),
        };
        let path = file.path();
        let unreadable = move |problem: &str| LogTail::none(LogState::Unreadable, path, problem);
        if self.log_reads.hung.lock().contains(&key) {
            return answer(unreadable(NO_ANSWER));
        }
        let Ok(permit) = self.log_reads.permits.clone().try_acquire_owned() else {
            return answer(unreadable("too many logs are being read at the moment"));
        };
        let hung = self.log_reads.hung.clone();
        self.tasks.spawn("log", async move {
            let mut reading = tokio::task::spawn_blocking(move || {
                let _permit = permit; // until the work is really over
                file.read(&query)
            });
            match tokio::time::timeout(LIMIT, &mut reading).await {
                Ok(Ok(tail)) => answer(tail),
                Ok(Err(error)) => {
                    tracing::error!(%error, process = %key, "a log could not be read");
                    answer(unreadable("the agent failed to read it"));
                }
                Err(_) => {
                    hung.lock().insert(key.clone());
                    answer(unreadable(NO_ANSWER));
                    let _ = reading.await;
                    hung.lock().remove(&key);
                }
            }
        });
    }

    /// The log of a process, or the answer where there is none to read, as far as memory tells.
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

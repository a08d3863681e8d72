//! Named tasks with one owner and one end.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// How long an idle blocking thread waits for more work: bursts are short, and stacks are large.
const IDLE_THREAD_MAX: Duration = Duration::from_secs(1);

/// Spawns tasks and ends them together. Clones share one set of tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    failure: Arc<Failure>,
    critical: Arc<Mutex<Vec<&'static str>>>,
}

/// The first critical task that ended.
#[derive(Debug, Default)]
struct Failure {
    of: OnceLock<TaskFailed>,
    happened: CancellationToken,
}

/// A critical task has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("critical task '{task}' {how}")]
pub struct TaskFailed {
    pub task: &'static str,
    pub how: &'static str,
}

impl Tasks {
    /// Cancelled when the program shuts down; pass it to loops that must say goodbye.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Runs `task` until it returns or shutdown is asked for, whichever comes first.
    pub fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        // Every layer around a future doubles its size: the compiler keeps room for it before and
        // after the move. A box is moved instead.
        let task = Box::pin(task);
        self.spawn_to_end(name, async move {
            let _ = shutdown.run_until_cancelled(task).await;
        });
    }

    /// As [`Tasks::spawn`], for a critical task: if it returns or panics before shutdown, [`Tasks::failed`] says so
    /// and the program has to exit.
    pub fn spawn_critical<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.note_critical(name);
        let tasks = self.clone();
        let task = Box::pin(task);
        self.spawn_to_end(name, async move {
            let ended = tasks.shutdown.run_until_cancelled(futures_catch_unwind(task)).await;
            tasks.critical_ended(name, ended);
        });
    }

    /// Returns when a critical task has failed; otherwise never.
    pub async fn failed(&self) -> TaskFailed {
        self.failure.happened.cancelled().await;
        self.failure.of.get().expect("it is set before").clone()
    }

    /// What failed so far.
    pub fn failure(&self) -> Option<&TaskFailed> {
        self.failure.of.get()
    }

    /// The names of the critical tasks that were spawned, sorted.
    pub fn critical(&self) -> Vec<&'static str> {
        let mut names = self.critical.lock().unwrap_or_else(PoisonError::into_inner).clone();
        names.sort_unstable();
        names
    }

    fn note_critical(&self, name: &'static str) {
        self.critical.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }

    fn critical_ended(&self, task: &'static str, ended: Option<Result<(), ()>>) {
        let how = match ended {
            None => return,
            Some(_) if self.shutdown.is_cancelled() => return,
            Some(Ok(())) => "ended",
            Some(Err(())) => "panicked",
        };
        tracing::error!(task, how, "critical task failed, exiting");
        let _ = self.failure.of.set(TaskFailed { task, how });
        self.failure.happened.cancel();
    }

    /// Runs `task` until it returns by itself; it watches [`Tasks::shutdown`] on its own.
    #[allow(clippy::disallowed_methods, reason = "this is where tasks get their name and owner")]
    pub fn spawn_to_end<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let guarded = async move {
            if futures_catch_unwind(task).await.is_err() {
                tracing::error!(task = name, "task panicked");
            }
        };
        self.tracker.spawn(guarded.instrument(tracing::Span::none()));
    }

    /// As [`Tasks::spawn_critical`], on a thread with its own runtime: the task may block it for a while, and what
    /// it spawns runs there too, without switching threads.
    pub fn spawn_on_thread<F>(&self, name: &'static str, task: F) -> std::io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(IDLE_THREAD_MAX).build()?;
        self.note_critical(name);
        let tasks = self.clone();
        let (over, is_over) = oneshot::channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let ended = runtime.block_on(tasks.shutdown.run_until_cancelled(futures_catch_unwind(task)));
            tasks.critical_ended(name, ended);
            runtime.shutdown_background(); // what hangs in a file system does not end
            let _ = over.send(());
        })?;
        self.spawn_to_end(name, async move {
            let _ = is_over.await;
        });
        Ok(())
    }

    /// Asks every task to end and waits for them, at most `patience`. True if all ended.
    pub async fn end(&self, patience: Duration) -> bool {
        self.shutdown.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}

/// Polls `task` and turns a panic into an error.
async fn futures_catch_unwind<F: Future<Output = ()>>(task: F) -> Result<(), ()> {
    let mut task = Box::pin(task);
    std::future::poll_fn(move |context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => std::task::Poll::Ready(Err(())),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn end_stops_a_task_that_would_run_for_ever() {
        let tasks = Tasks::default();
        tasks.spawn("forever", std::future::pending());

        assert!(tasks.end(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_task_on_its_own_thread_ends_with_the_others_and_keeps_its_panic() {
        let tasks = Tasks::default();
        tasks.spawn_on_thread("forever", std::future::pending()).unwrap();
        tasks.spawn_on_thread("panics", async { panic!("on purpose") }).unwrap();

        assert!(tasks.end(Duration::from_secs(60)).await);
    }

    #[tokio::test]
    async fn a_critical_task_that_panics_or_returns_is_told_by_its_name() {
        let [panics, returns, on_thread] = [Tasks::default(), Tasks::default(), Tasks::default()];

        panics.spawn_critical("sweeper", async { panic!("on purpose") });
        returns.spawn_critical("recorder", async {});
        on_thread.spawn_on_thread("driver", async { panic!("on purpose") }).unwrap();

        assert_eq!(panics.failed().await.to_string(), "critical task 'sweeper' panicked");
        assert_eq!(returns.failed().await.to_string(), "critical task 'recorder' ended");
        assert_eq!(on_thread.failed().await.to_string(), "critical task 'driver' panicked");
    }

    #[tokio::test]
    async fn critical_tasks_that_end_at_the_shutdown_have_not_failed() {
        let tasks = Tasks::default();
        let shutdown = tasks.shutdown();
        tasks.spawn_critical("forever", std::future::pending());
        tasks.spawn_critical("polite", async move { shutdown.cancelled().await });

        assert!(tasks.end(Duration::from_secs(60)).await);

        assert_eq!(tasks.failure(), None);
    }

    #[tokio::test]
    async fn a_panic_stays_inside_its_task() {
        let tasks = Tasks::default();
        tasks.spawn("panics", async { panic!("on purpose") });

        assert!(tasks.end(Duration::from_secs(5)).await);
    }
}

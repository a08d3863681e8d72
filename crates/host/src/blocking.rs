//! File and name service work that may hang: on a thread of its own, with a limit.
//!
//! Promised: once it has begun a caller waits no longer than its limit, work on something that hangs
//! occupies one thread, however often it is asked for, and a crowd of callers does not become a crowd
//! of threads. Absent: ending the hung work, which nobody can.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Work that is under way and has not been given up.
const PLACES: usize = 16;

/// The work did not end within its limit, or earlier work of the same name still hangs.
#[derive(Debug)]
pub(crate) struct NoAnswer;

#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    hung: Arc<Mutex<HashSet<String>>>,
    places: Arc<Semaphore>,
}

impl Default for Blocking {
    fn default() -> Self {
        Self { hung: Arc::default(), places: Arc::new(Semaphore::new(PLACES)) }
    }
}

impl Blocking {
    /// Work that takes a while but cannot hang. None: it has panicked, or the program ends.
    pub(crate) async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _place = self.places.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }

    /// `name` says what may hang: work of one name is not begun again while earlier work hangs.
    pub(crate) async fn run<T, F>(&self, name: &str, limit: Duration, work: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if self.hung.lock().contains(name) {
            return Err(NoAnswer);
        }
        let _place = self.places.acquire().await.map_err(|_| NoAnswer)?;
        let stage = Arc::new(Mutex::new(Stage::Working));
        let mark = Mark { stage: Arc::clone(&stage), hung: Arc::clone(&self.hung), name: name.to_owned() };
        let mut work = tokio::task::spawn_blocking(move || {
            let _mark = mark;
            work()
        });
        if let Ok(answer) = tokio::time::timeout(limit, &mut work).await {
            return answer.map_err(|_| NoAnswer);
        }
        {
            let mut stage = stage.lock();
            if *stage == Stage::Working {
                *stage = Stage::GivenUp;
                self.hung.lock().insert(name.to_owned());
                return Err(NoAnswer);
            }
        }
        work.await.map_err(|_| NoAnswer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    GivenUp,
    Over,
}

/// Takes the name off the hung ones when the work ends, also by a panic.
struct Mark {
    stage: Arc<Mutex<Stage>>,
    hung: Arc<Mutex<HashSet<String>>>,
    name: String,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut stage = self.stage.lock();
        *stage = Stage::Over;
        self.hung.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_that_hangs_is_given_up_and_not_begun_again_until_it_ends() {
        let blocking = Blocking::default();
        let (release, hanging) = mpsc::channel::<()>();

        let first = blocking.run("nfs", Duration::from_millis(10), move || hanging.recv().is_ok()).await;
        let second = blocking.run("nfs", Duration::from_secs(60), || true).await;
        let other = blocking.run("disk", Duration::from_secs(60), || true).await;

        assert!(first.is_err() && second.is_err());
        assert!(other.unwrap());
        release.send(()).unwrap();
        while blocking.run("nfs", Duration::from_secs(60), || true).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}

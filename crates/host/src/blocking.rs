//! File and name service work that may hang: on a thread of its own, with a limit.
//!
//! Promised: a caller waits no longer than its limit, and work on something that hangs occupies
//! one thread, however often it is asked for. Absent: ending the hung work, which nobody can.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The work did not end within its limit, or earlier work of the same name still hangs.
#[derive(Debug)]
pub(crate) struct NoAnswer;

#[derive(Clone, Debug, Default)]
pub(crate) struct Blocking {
    hung: Arc<Mutex<HashSet<String>>>,
}

impl Blocking {
    /// `name` says what may hang: work of one name is not begun again while earlier work hangs.
    pub(crate) async fn run<T, F>(&self, name: &str, limit: Duration, work: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if self.hung.lock().contains(name) {
            return Err(NoAnswer);
        }
        let over = Arc::new(Mutex::new(false));
        let mark = Over { over: Arc::clone(&over), hung: Arc::clone(&self.hung), name: name.to_owned() };
        let working = tokio::task::spawn_blocking(move || {
            let _mark = mark;
            work()
        });
        match tokio::time::timeout(limit, working).await {
            Ok(joined) => joined.map_err(|_| NoAnswer),
            Err(_) => {
                let over = over.lock();
                if !*over {
                    self.hung.lock().insert(name.to_owned());
                }
                Err(NoAnswer)
            }
        }
    }
}

/// Takes the name off the hung ones when the work ends, also by a panic.
struct Over {
    over: Arc<Mutex<bool>>,
    hung: Arc<Mutex<HashSet<String>>>,
    name: String,
}

impl Drop for Over {
    fn drop(&mut self) {
        let mut over = self.over.lock();
        *over = true;
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

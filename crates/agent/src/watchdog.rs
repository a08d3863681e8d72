//! Ends an agent that makes no progress, so that whatever started it can restart it.
//!
//! Promised: a driver that ends, and one that makes no turn for [`STALL_PROBES`] probes, is reported to the main
//! thread, which ends the agent in order. If the main thread makes no progress itself, or does not end the agent
//! within [`ORDERLY_END_MAX`], the process exits with [`STALLED_EXIT_CODE`], without waiting for anything. This
//! runs on a thread of its own that touches no file: a state directory that hangs does not stop it. Probes are
//! counted, not time: a host that was suspended has missed one of them at most.
//! Absent: a thread that hangs in the kernel and cannot be killed keeps the process in its exit; and the agent's end
//! after a stop, for which systemd has a limit.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proctor_runtime::{Tasks, systemd};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::AgentError;
use crate::driver::{Inbox, Input};

/// How often both are checked for progress.
const PROBE_PERIOD: Duration = Duration::from_secs(10);
/// After so many probes without progress there will be none. A sync of a slow disk takes seconds, not a minute.
const STALL_PROBES: u32 = 6;
pub(crate) const STALL_MAX: Duration = PROBE_PERIOD.saturating_mul(STALL_PROBES);
/// Often enough that every probe sees progress.
const PULSE_PERIOD: Duration = Duration::from_secs(1);
/// Tasks have 5 s to end, and the log 1 s. Less than what systemd waits for beyond [`STALL_MAX`].
const ORDERLY_END_MAX: Duration = Duration::from_secs(10);
/// For the last line of the log to be written by the thread that does that.
const LAST_LINE_MAX: Duration = Duration::from_secs(1);
/// As of every agent that fails.
const STALLED_EXIT_CODE: u8 = 1;

/// What makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stalled {
    Driver,
    Main,
}

/// Counts probes without progress.
struct Progress {
    count: Arc<AtomicU64>,
    seen: u64,
    missed: u32,
}

impl Progress {
    fn new(count: Arc<AtomicU64>) -> Self {
        let seen = count.load(Ordering::Relaxed);
        Self { count, seen, missed: 0 }
    }

    fn probe(&mut self) {
        let now = self.count.load(Ordering::Relaxed);
        self.missed = if now == self.seen { self.missed + 1 } else { 0 };
        self.seen = now;
    }

    fn is_stalled(&self) -> bool {
        self.missed >= STALL_PROBES
    }
}

/// The main thread's end of the watchdog.
pub(crate) struct Watchdog {
    /// Changes while the main thread turns.
    pulse: Arc<AtomicU64>,
    driver_stalled: oneshot::Receiver<()>,
}

impl Watchdog {
    /// Watches on a thread of its own, until `tasks` end.
    pub(crate) fn start(inbox: Inbox, turns: Arc<AtomicU64>, tasks: &Tasks) -> std::io::Result<Self> {
        Self::start_with(PROBE_PERIOD, inbox, turns, tasks, |stalled| async move {
            let thread = std::thread::Builder::new().name("last-line".to_owned());
            // Not here: whoever hangs may hold a lock of the log.
            let _ = thread.spawn(move || tracing::error!(?stalled, "no progress for {STALL_MAX:?}, exiting at once"));
            tokio::time::sleep(LAST_LINE_MAX).await;
            proctor_host::exit_at_once(STALLED_EXIT_CODE)
        })
    }

    fn start_with<E: Future<Output = Infallible> + Send + 'static>(
        period: Duration,
        inbox: Inbox,
        turns: Arc<AtomicU64>,
        tasks: &Tasks,
        exit: impl FnOnce(Stalled) -> E + Send + 'static,
    ) -> std::io::Result<Self> {
        let pulse = Arc::new(AtomicU64::new(0));
        let (tell, driver_stalled) = oneshot::channel();
        let of_main = pulse.clone();
        tasks.spawn_on_thread("watchdog", async move {
            let stalled = watch(period, inbox, turns, of_main).await;
            if stalled == Stalled::Driver && tell.send(()).is_ok() {
                tokio::time::sleep(ORDERLY_END_MAX).await;
            }
            match exit(stalled).await {}
        })?;
        Ok(Self { pulse, driver_stalled })
    }

    /// Returns when the driver has ended or hangs; as long as it is polled, the main thread makes progress. The end of
    /// the driver after `shutdown` is not a failure, and not reported.
    pub(crate) async fn failure(
        &mut self,
        mut driver_gone: oneshot::Receiver<()>,
        shutdown: CancellationToken,
    ) -> AgentError {
        let mut stalled = std::pin::pin!(async {
            if (&mut self.driver_stalled).await.is_err() {
                std::future::pending::<()>().await; // the watchdog has ended, as all tasks do at the end
            }
        });
        loop {
            self.pulse.fetch_add(1, Ordering::Relaxed);
            tokio::select! {
                _ = &mut driver_gone => {
                    if shutdown.is_cancelled() {
                        std::future::pending::<()>().await;
                    }
                    return AgentError::DriverEnded;
                }
                () = &mut stalled => return AgentError::DriverStalled,
                () = tokio::time::sleep(PULSE_PERIOD) => {}
            }
        }
    }
}

/// Returns when one of them has made no progress for so long that it never will: a hanging read or write, or a
/// deadlock.
async fn watch(period: Duration, inbox: Inbox, turns: Arc<AtomicU64>, pulse: Arc<AtomicU64>) -> Stalled {
    let (mut driver, mut main) = (Progress::new(turns), Progress::new(pulse));
    loop {
        tokio::time::sleep(period).await;
        driver.probe();
        main.probe();
        if driver.missed == 0 && main.missed == 0 {
            systemd::notify("WATCHDOG=1");
        }
        // First: it cannot end the agent in order.
        if main.is_stalled() {
            return Stalled::Main;
        }
        if driver.is_stalled() {
            return Stalled::Driver;
        }
        // With nothing else to do it turns for this. Without room in its inbox it has something to do.
        let _ = inbox.try_send(Input::Beat);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::driver;

    async fn raise(count: Arc<AtomicU64>) -> Infallible {
        loop {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PULSE_PERIOD).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_no_longer_turns_ends_the_agent_within_a_minute() {
        let (inbox, mut inputs) = driver::inbox();
        let (turns, pulse) = (Arc::new(AtomicU64::new(0)), Arc::default());
        let begun = tokio::time::Instant::now();
        let hangs = async {
            // It answers for ten minutes, and then hangs.
            for _ in 0..60 {
                inputs.recv().await.unwrap();
                turns.fetch_add(1, Ordering::Relaxed);
            }
            std::future::pending::<Infallible>().await
        };

        let stalled = tokio::select! {
            stalled = watch(PROBE_PERIOD, inbox, turns.clone(), Arc::clone(&pulse)) => stalled,
            never = hangs => match never {},
            never = raise(pulse) => match never {},
        };

        assert_eq!(stalled, Stalled::Driver);
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(600) && took <= Duration::from_secs(680), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_main_thread_that_no_longer_turns_ends_the_agent_within_a_minute() {
        let (inbox, _inputs) = driver::inbox();
        let turns = Arc::default();
        let begun = tokio::time::Instant::now();

        let stalled = tokio::select! {
            stalled = watch(PROBE_PERIOD, inbox, Arc::clone(&turns), Arc::default()) => stalled,
            never = raise(turns) => match never {},
        };

        assert_eq!(stalled, Stalled::Main);
        assert!(begun.elapsed() <= STALL_MAX + PULSE_PERIOD, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_clock_is_one_probe_and_ends_no_agent() {
        let (inbox, _inputs) = driver::inbox();
        let (turns, pulse) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut watched = Box::pin(watch(PROBE_PERIOD, inbox, turns.clone(), pulse.clone()));

        for _ in 0..10 {
            assert!(futures::poll!(&mut watched).is_pending());
            // Nobody turned meanwhile.
            tokio::time::advance(Duration::from_secs(24 * 3600)).await;
            assert!(futures::poll!(&mut watched).is_pending());
            turns.fetch_add(1, Ordering::Relaxed);
            pulse.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_main_thread_that_hangs_in_a_file_system_does_not_stop_the_watchdog() {
        let (inbox, _inputs) = driver::inbox();
        let (exited, has_exited) = mpsc::channel();
        let tasks = Tasks::default();
        let started =
            Watchdog::start_with(Duration::from_millis(1), inbox, Arc::default(), &tasks, |stalled| async move {
                exited.send(stalled).unwrap();
                std::future::pending().await
            });
        let _watchdog = started.unwrap();

        // This blocks the runtime, as a read of a hanging file does.
        let stalled = has_exited.recv_timeout(Duration::from_secs(60));

        assert_eq!(stalled, Ok(Stalled::Main));
        assert!(tasks.end(Duration::from_secs(60)).await);
    }

    fn unwatched() -> (Watchdog, oneshot::Sender<()>) {
        let (tell, driver_stalled) = oneshot::channel();
        (Watchdog { pulse: Arc::default(), driver_stalled }, tell)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_driver_is_a_failure_of_an_agent_whose_main_thread_turns() {
        let (mut watchdog, tell) = unwatched();
        let (_is_there, driver_gone) = oneshot::channel();
        tell.send(()).unwrap();

        let failure = watchdog.failure(driver_gone, CancellationToken::new()).await;

        assert!(matches!(failure, AgentError::DriverStalled), "{failure}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_watchdog_itself_says_nothing_about_the_driver() {
        let (mut watchdog, tell) = unwatched();
        let (_is_there, driver_gone) = oneshot::channel();
        drop(tell);

        let failure = watchdog.failure(driver_gone, CancellationToken::new());

        assert!(tokio::time::timeout(Duration::from_secs(3600), failure).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_driver_is_noticed_at_once() {
        let (mut watchdog, _tell) = unwatched();
        let (is_there, driver_gone) = oneshot::channel();
        drop(is_there);
        let begun = tokio::time::Instant::now();

        let failure = watchdog.failure(driver_gone, CancellationToken::new()).await;

        assert!(matches!(failure, AgentError::DriverEnded), "{failure}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_driver_is_no_failure_of_an_agent_that_is_to_end() {
        let (mut watchdog, _tell) = unwatched();
        let (is_there, driver_gone) = oneshot::channel();
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        drop(is_there);

        let failure = watchdog.failure(driver_gone, shutdown);

        assert!(tokio::time::timeout(Duration::from_secs(3600), failure).await.is_err());
    }
}

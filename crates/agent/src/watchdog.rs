//! Ends an agent that makes no progress, so that whatever started it can restart it.
//!
//! Promised: a driver that ends, and one that makes no turn for [`STALL_PROBES`] probes, is reported to the main
//! thread, which ends the agent in order. If the main thread makes no progress itself, or does not end the agent
//! within [`ORDERLY_END_MAX`], the process exits with [`STALLED_EXIT_CODE`], without waiting for anything. So does one
//! that is still there [`SHUTDOWN_MAX`] after its tasks were asked to end, for whatever reason: with systemd or
//! without, no agent hangs in its shutdown. This runs on a thread of its own that touches no file and outlives the
//! tasks: a state directory that hangs does not stop it. Probes are counted, not time: a host that was suspended has
//! missed one of them at most.
//! Absent: a thread that hangs in the kernel and cannot be killed keeps the process in its exit; and the shutdown of
//! an agent inside another program (`proctor dev`), which may go on without it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proctor_runtime::systemd;
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
/// From the moment the tasks are asked to end to the end of the program: 5 s for a goodbye to the server, 5 s for the
/// tasks, and 1 s for the log. An agent that becomes another version has become it by then.
const SHUTDOWN_MAX: Duration = Duration::from_secs(18);
/// In so many steps: of the time that a process was stopped, one counts.
const STEPS: u32 = 20;
/// For the last line of the log to be written by the thread that does that.
const LAST_LINE_MAX: Duration = Duration::from_secs(1);
/// As of every agent that fails.
const STALLED_EXIT_CODE: u8 = 1;

/// What makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stalled {
    Driver,
    Main,
    /// The tasks were asked to end, and the program has not exited.
    Shutdown,
}

/// How long the watchdog waits for what.
#[derive(Clone, Copy, Debug)]
struct Patience {
    probe_period: Duration,
    orderly_end: Duration,
    /// None: the program does not end with the agent.
    shutdown: Option<Duration>,
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
    /// Watches on a thread of its own until the program has exited, if that `ends_with_agent`; otherwise until
    /// `shutdown`.
    pub(crate) fn start(
        inbox: Inbox,
        turns: Arc<AtomicU64>,
        shutdown: CancellationToken,
        ends_with_agent: bool,
    ) -> std::io::Result<Self> {
        let patience = Patience {
            probe_period: PROBE_PERIOD,
            orderly_end: ORDERLY_END_MAX,
            shutdown: ends_with_agent.then_some(SHUTDOWN_MAX),
        };
        Self::start_with(patience, inbox, turns, shutdown, |stalled| async move {
            let thread = std::thread::Builder::new().name("last-line".to_owned());
            // Not here: whoever hangs may hold a lock of the log.
            let _ = thread.spawn(move || tracing::error!(?stalled, "no progress, exiting at once"));
            tokio::time::sleep(LAST_LINE_MAX).await;
            proctor_host::exit_at_once(STALLED_EXIT_CODE)
        })
    }

    /// Not one of the tasks: it is for the time when these have ended, too.
    fn start_with<E: Future<Output = Infallible> + Send + 'static>(
        patience: Patience,
        inbox: Inbox,
        turns: Arc<AtomicU64>,
        shutdown: CancellationToken,
        exit: impl FnOnce(Stalled) -> E + Send + 'static,
    ) -> std::io::Result<Self> {
        let pulse = Arc::new(AtomicU64::new(0));
        let (tell, driver_stalled) = oneshot::channel();
        let watched = watch(patience.probe_period, inbox, turns, pulse.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let guard = async move {
            let stalled = match shutdown.run_until_cancelled(watched).await {
                None => {
                    let Some(limit) = patience.shutdown else { return };
                    wait_in_steps(limit).await;
                    Stalled::Shutdown
                }
                Some(Stalled::Driver) if tell.send(()).is_ok() => {
                    wait_in_steps(patience.orderly_end).await;
                    // An agent inside another program has ended, and the program goes on.
                    if patience.shutdown.is_none() && shutdown.is_cancelled() {
                        return;
                    }
                    Stalled::Driver
                }
                Some(stalled) => stalled,
            };
            match exit(stalled).await {}
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || runtime.block_on(guard))?;
        Ok(Self { pulse, driver_stalled })
    }

    /// Returns when the driver has ended or hangs; as long as it is polled, the main thread makes progress. The end of
    /// the driver after `shutdown` is not a failure, and not reported. A watchdog that has failed itself is one.
    pub(crate) async fn failure(
        &mut self,
        mut driver_gone: oneshot::Receiver<()>,
        shutdown: CancellationToken,
    ) -> AgentError {
        let mut stalled = std::pin::pin!(async {
            match (&mut self.driver_stalled).await {
                Ok(()) => AgentError::DriverStalled,
                // At the end it no longer watches.
                Err(_) if shutdown.is_cancelled() => std::future::pending().await,
                Err(_) => AgentError::WatchdogEnded,
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
                failure = &mut stalled => return failure,
                () = tokio::time::sleep(PULSE_PERIOD) => {}
            }
        }
    }
}

/// So that a process that was stopped meanwhile gets nearly all of its time when it goes on.
async fn wait_in_steps(limit: Duration) {
    for _ in 0..STEPS {
        tokio::time::sleep(limit / STEPS).await;
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

    use proctor_runtime::Tasks;

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
        let (_watchdog, has_exited) = impatient(inbox, Arc::default(), &Tasks::default(), None);

        // This blocks the runtime, as a read of a hanging file does.
        let stalled = has_exited.recv_timeout(Duration::from_secs(60));

        assert_eq!(stalled, Ok(Stalled::Main));
    }

    /// Tells why it would have ended the process.
    fn impatient(
        inbox: Inbox,
        pulse_of_driver: Arc<AtomicU64>,
        tasks: &Tasks,
        shutdown: Option<Duration>,
    ) -> (Watchdog, mpsc::Receiver<Stalled>) {
        let (exited, has_exited) = mpsc::channel();
        let short = Duration::from_millis(1);
        let patience = Patience { probe_period: short, orderly_end: short, shutdown };
        let started = Watchdog::start_with(patience, inbox, pulse_of_driver, tasks.shutdown(), |stalled| async move {
            exited.send(stalled).unwrap();
            std::future::pending().await
        });
        (started.unwrap(), has_exited)
    }

    #[tokio::test]
    async fn an_agent_that_hangs_in_its_shutdown_after_its_tasks_have_ended_is_ended() {
        let (inbox, _inputs) = driver::inbox();
        let tasks = Tasks::default();
        let (_watchdog, has_exited) = impatient(inbox, Arc::default(), &tasks, Some(Duration::from_millis(1)));

        assert!(tasks.end(Duration::from_secs(60)).await, "they do not wait for the watchdog");
        // The main thread hangs here.
        let stalled = has_exited.recv_timeout(Duration::from_secs(60));

        assert!(stalled.is_ok(), "{stalled:?}");
    }

    #[tokio::test]
    async fn an_agent_whose_driver_hangs_is_ended_also_if_its_tasks_have_ended_meanwhile() {
        let (inbox, _inputs) = driver::inbox();
        let tasks = Tasks::default();
        let (mut watchdog, has_exited) = impatient(inbox, Arc::default(), &tasks, Some(Duration::from_secs(3600)));
        let pulse = watchdog.pulse.clone();
        let (stop, is_stopped) = mpsc::channel::<()>();
        let main_turns = std::thread::spawn(move || {
            while is_stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                pulse.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (_is_there, driver_gone) = oneshot::channel();

        let failure = watchdog.failure(driver_gone, tasks.shutdown()).await;
        assert!(tasks.end(Duration::from_secs(60)).await);
        let stalled = has_exited.recv_timeout(Duration::from_secs(60));

        drop(stop);
        main_turns.join().unwrap();
        assert!(matches!(failure, AgentError::DriverStalled), "{failure}");
        assert_eq!(stalled, Ok(Stalled::Driver));
    }

    #[tokio::test]
    async fn the_program_around_an_agent_goes_on_without_it() {
        let (inbox, _inputs) = driver::inbox();
        let tasks = Tasks::default();
        let (turns, patience) = (Arc::new(AtomicU64::new(0)), None);
        tasks.shutdown().cancel();

        let (_watchdog, has_exited) = impatient(inbox, turns, &tasks, patience);

        // Its thread has ended, and with it the sender.
        let ended = has_exited.recv_timeout(Duration::from_secs(60));
        assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected));
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
    async fn the_end_of_the_watchdog_itself_is_a_failure_unless_the_agent_is_to_end() {
        for is_ending in [false, true] {
            let (mut watchdog, tell) = unwatched();
            let (_is_there, driver_gone) = oneshot::channel();
            let shutdown = CancellationToken::new();
            if is_ending {
                shutdown.cancel();
            }
            drop(tell);

            let failure = watchdog.failure(driver_gone, shutdown);
            let failure = tokio::time::timeout(Duration::from_secs(3600), failure).await;

            assert_eq!(matches!(failure, Ok(AgentError::WatchdogEnded)), !is_ending, "{failure:?}");
        }
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

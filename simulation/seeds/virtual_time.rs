//! Time and randomness of a simulation: the clock stands still while anything can be done, and jumps when nothing
//! can.
//!
//! Promised: on the thread of a simulation every clock reading, of this workspace or of the standard library,
//! follows the paused clock of its runtime, and the standard library's randomness follows the seed. Other threads
//! have the real ones. Absent: randomness of libraries that ask the kernel themselves, such as keys, nonces and the
//! random part of ids; nothing that a simulation judges depends on it.

#![allow(unsafe_code, reason = "two functions of libc are replaced in this program")]

use std::cell::Cell;
use std::time::Duration;

/// The longest that data takes over the loopback. The runtime's clock jumps to the next timer whenever nothing is
/// ready, even if a socket is about to be: this keeps the next timer near.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// In real time: the minimum duration of a tick. Sockets and the store's thread take real time, which the runtime
/// does not see. Without this, a call that takes a moment of it would outlast its caller's patience.
const TICK_MIN: Duration = Duration::from_micros(200);

#[derive(Clone, Copy)]
struct Clock {
    start: tokio::time::Instant,
    monotonic: Duration,
    wall: Duration,
}

thread_local! {
    static CLOCK: Cell<Option<Clock>> = const { Cell::new(None) };
    /// The runtime's clock is being read.
    static IS_READING: Cell<bool> = const { Cell::new(false) };
    static CHANCE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work` to its end on a thread of its own, with a clock and randomness of its own.
pub(crate) fn simulate<T, F, Fut>(seed: u64, work: F) -> std::thread::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T>,
{
    let run = move || {
        CHANCE.set(Some(seed));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        let done = runtime.block_on(async {
            CLOCK.set(Some(Clock {
                start: tokio::time::Instant::now(),
                monotonic: real(libc::CLOCK_MONOTONIC),
                wall: real(libc::CLOCK_REALTIME),
            }));
            // Neither is polled after the other has ended.
            tokio::select! {
                done = work() => done,
                never = tick() => match never {},
            }
        });
        // The rest is dropped with the real clock: there is no runtime to ask.
        CLOCK.set(None);
        runtime.shutdown_background();
        done
    };
    std::thread::Builder::new().name(format!("seed {seed}")).spawn(run).expect("a thread can be made").join()
}

#[allow(clippy::disallowed_methods, reason = "real time is to pass, and nothing else on this thread")]
async fn tick() -> std::convert::Infallible {
    loop {
        tokio::time::sleep(TICK).await;
        std::thread::sleep(TICK_MIN);
    }
}

/// The wall clock of everybody is set.
pub(crate) fn step_wall_clock(by_ms: i64) {
    let by = Duration::from_millis(by_ms.unsigned_abs());
    CLOCK.set(
        CLOCK.get().map(|clock| Clock { wall: if by_ms < 0 { clock.wall - by } else { clock.wall + by }, ..clock }),
    );
}

/// What the simulated clock says; None on other threads, and for clocks that count CPU time.
fn simulated(id: libc::clockid_t) -> Option<Duration> {
    let clock = CLOCK.get().filter(|_| !IS_READING.get())?;
    let base = match id {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => clock.wall,
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => {
            clock.monotonic
        }
        _ => return None,
    };
    IS_READING.set(true);
    let elapsed = tokio::time::Instant::now().saturating_duration_since(clock.start);
    IS_READING.set(false);
    Some(base + elapsed)
}

fn real(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to where `time` is.
    unsafe { libc::syscall(libc::SYS_clock_gettime, id, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Replaces libc's.
///
/// # Safety
/// As of libc's: `time` points to a timespec, or is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(id: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let Some(now) = simulated(id) else {
        // SAFETY: the caller's promise is what the kernel asks for.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, id, time) } as libc::c_int;
    };
    if !time.is_null() {
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        // SAFETY: the caller promises that a timespec is there.
        unsafe { time.write(libc::timespec { tv_sec: seconds, tv_nsec: i64::from(now.subsec_nanos()) }) };
    }
    0
}

/// Replaces libc's, from which the standard library seeds its hash maps.
///
/// # Safety
/// As of libc's: `length` bytes may be written at `buffer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, length: usize, flags: libc::c_uint) -> isize {
    let Some(mut seed) = CHANCE.get() else {
        // SAFETY: the caller's promise is what the kernel asks for.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as isize;
    };
    for index in 0..length {
        seed = crate::chance::next(seed);
        // SAFETY: `index` is below `length`, and the caller promises that these bytes may be written.
        unsafe { buffer.cast::<u8>().add(index).write((seed >> 32) as u8) };
    }
    CHANCE.set(Some(seed));
    isize::try_from(length).unwrap_or(isize::MAX)
}

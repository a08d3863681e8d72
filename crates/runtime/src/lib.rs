//! What every long-running program of ours needs: named tasks that end, backoff, the clock, logging that never
//! blocks, private files, link sockets and limits on their handshakes, Prometheus counters, and systemd
//! notifications.
//!
//! Promised: a task that was spawned here ends when its program shuts down, and its panic is logged with
//! its name; when a critical one ends, the program is told and must not continue without it; logging
//! never blocks. Absent: any knowledge of what the tasks do.
//!
//! Start at [`Tasks`].

mod backoff;
pub mod clock;
mod handshakes;
mod log;
pub mod metrics;
pub mod private;
mod socket;
pub mod systemd;
mod tasks;

pub use backoff::{Backoff, Dice};
pub use handshakes::{Admitted, Greeting, Handshakes, KNOWN_ADDRESSES_MAX, SLOT_WAIT_MAX, SilentSlot, share_of};
pub use log::LogSink;
pub use socket::{end_unacknowledged, prepare_link};
pub use tasks::{TaskFailed, Tasks};

/// Resolves on SIGTERM or SIGINT; signals count from this call on, not from the first poll.
pub fn stop_requested() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let handlers = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = handlers else {
            return std::future::pending().await; // without handlers the signals end the program by themselves
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// An error with all its causes, for one line of text.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

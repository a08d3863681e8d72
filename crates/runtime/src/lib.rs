//! What every long-running program of ours needs: named tasks that end, back-off, and the clock.
//!
//! Promised: a task that was spawned here ends when its program shuts down, and its panic is
//! logged with its name. Absent: any knowledge of what the tasks do.

mod backoff;
pub mod clock;
mod tasks;

pub use backoff::Backoff;
pub use tasks::Tasks;

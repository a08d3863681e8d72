//! Real programs for tests and benchmarks: a server, agents, and processes to supervise.
//!
//! Promised: everything lives in a temporary directory and on ports of its own, and is gone when
//! the fleet is dropped, supervised processes included, in whatever order a test drops the rest.
//! Waiting means polling until a condition holds, up to a generous limit. Absent: fakes.
//!
//! Start at [`Fleet`].

mod fleet;
mod program;
mod proxy;
mod skip;
mod subject;

use std::time::{Duration, Instant};

pub use fleet::{APP, Agent, Fleet, Server, run_proctor};
pub use program::{Program, binary, free_port};
pub use proxy::SlowProxy;
pub use skip::skip;
pub use subject::{Subject, end_all_in, running_from, running_in};

/// Generous: a loaded machine may be ten times slower than an idle one.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Asks until the answer is there.
pub async fn eventually<T, F, Fut>(what: &str, mut ask: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! Real programs for tests and benchmarks: a server, agents, and processes to supervise.
//!
//! Promised: everything lives in a temporary directory and on ports of its own, and is gone when
//! the fleet is dropped, supervised processes included, in whatever order a test drops the rest.
//! Waiting means polling until a condition holds, up to a generous limit. Absent: fakes.
//!
//! Start at [`Fleet`]; faults are in [`FaultProxy`] and [`NetworkNamespace`], and [`History`] is the judge.

mod api;
mod fleet;
mod history;
mod http_receiver;
mod hung_fs;
mod load;
mod marked;
mod memory_trap;
mod namespace;
mod program;
mod proxy;
mod relays;
mod skip;
mod subject;
mod swarm;

use std::time::{Duration, Instant, SystemTime};

pub use api::Api;
pub use fleet::{APP, Agent, Fleet, Server, Setup, run_proctor};
pub use history::{
    Answer, Breach, GenerationRead, HANDLING, History, HostEvent, HostRecord, Invariant, MemorySample, Operation,
    TargetRead, TaskRead, first_lines, read_swarm_record,
};
pub use http_receiver::receive_request;
pub use hung_fs::HungFileSystem;
pub use load::{Load, LoadPlan, read_until_final, submit_until_answered};
pub use marked::Marked;
pub use memory_trap::MemoryTrap;
pub use namespace::NetworkNamespace;
pub use program::{Launcher, Program, binary, free_port};
pub use proxy::{Direction, FaultProxy};
pub use relays::Relays;
pub use skip::skip;
pub use subject::{Subject, end_all_in, running_from, running_in};
pub use swarm::{Swarm, SwarmPlan};

/// Generous: a loaded machine may be ten times slower than an idle one.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Polls until the answer is there.
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

/// The wall clock, as the programs under test read it.
#[allow(clippy::disallowed_methods, reason = "the clock of the tests")]
pub fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

//! Faults that take minutes, against real programs: each scenario ends with a line that says whether it passed and what
//! was seen. Run with `make soak`; see docs/faults.md. Needs root, and nft, ip, tc and faketime.
//!
//! Promised: everything that a scenario starts is gone at its end; each scenario has judgements that can fail (see `judge`).
//! Absent: limits on speed that docs/faults.md does not name; what was measured is printed.

mod enrolments;
mod hosts;
mod judge;
mod network;
mod relays;
mod servers;

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use futures::FutureExt;

use judge::Seen;

/// Runs faults against a real fleet and checks its invariants
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Only these [default: all]
    #[arg(value_enum, value_name = "SCENARIO")]
    only: Vec<Scenario>,
    /// Simulated agents where a scenario uses them
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) agents: u32,
    /// Operations per second where a scenario runs under load
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) rate: u32,
    /// Targets of a large submit
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) targets: usize,
    /// Share of the full durations, to try a scenario quickly
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
}

impl Arguments {
    /// A duration of the scenario, shortened as asked for.
    pub(crate) fn scaled(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds).mul_f64(self.scale.clamp(0.01, 100.0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// 1: SIGKILL of the server under load, again and again
    ServerKilled,
    /// 2: SIGKILL of the server in the middle of large submits
    SubmitKilled,
    /// 8: an agent cut off for two minutes
    Partition,
    /// 12: 5 % of packets lost, both ways
    PacketLoss,
    /// 14: control operations while a large output goes over 64 kbit/s
    SlowLink,
    /// 15: an established connection whose packets vanish
    HalfOpen,
    /// 16: a reset of every connection every ten seconds
    Resets,
    /// 18: all agents come back to a restarted server
    ReconnectStorm,
    /// 19: more agents enrol at once than their token has uses
    EnrolStorm,
    /// 20: one of two relays is killed
    RelayKilled,
    /// 21: both relays are gone for five minutes
    RelaysGone,
    /// 28: the server's clock jumps during a rolling task
    ClockJump,
    /// 35: processes that crash again and again on every agent
    CrashLoops,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let all = Scenario::value_variants();
    let chosen = if arguments.only.is_empty() { all.to_vec() } else { arguments.only.clone() };
    let mut failed = 0;
    for scenario in chosen {
        let name = scenario.to_possible_value().expect("no scenario is hidden").get_name().to_owned();
        eprintln!("{name} …");
        // A wait that times out panics: it fails its own scenario, not the others.
        let run = std::panic::AssertUnwindSafe(Box::pin(run(scenario, &arguments))).catch_unwind().await;
        match run.unwrap_or_else(|_| Err(anyhow::anyhow!("panicked, see above"))) {
            Ok(seen) => println!("pass {name}: {seen}"),
            Err(error) => {
                failed += 1;
                println!("FAIL {name}: {error:#}");
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} scenarios failed");
    Ok(())
}

async fn run(scenario: Scenario, arguments: &Arguments) -> Result<Seen> {
    match scenario {
        Scenario::ServerKilled => servers::killed_under_load(arguments).await,
        Scenario::SubmitKilled => servers::killed_amid_submits(arguments).await,
        Scenario::Partition => network::partition(arguments).await,
        Scenario::PacketLoss => network::packet_loss(arguments).await,
        Scenario::SlowLink => network::slow_link(arguments).await,
        Scenario::HalfOpen => network::half_open(arguments).await,
        Scenario::Resets => servers::resets(arguments).await,
        Scenario::ReconnectStorm => servers::reconnect_storm(arguments).await,
        Scenario::EnrolStorm => enrolments::storm(arguments).await,
        Scenario::RelayKilled => relays::killed(arguments).await,
        Scenario::RelaysGone => relays::gone(arguments).await,
        Scenario::ClockJump => hosts::clock_jump(arguments).await,
        Scenario::CrashLoops => hosts::crash_loops(arguments).await,
    }
}

//! Benchmarks: every figure is a ratio against a floor or a peer that is measured in the same run,
//! because machines differ and are noisy. Run with `make bench`.

mod figures;
mod restart;
mod throughput;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures Proctor against what the machine itself can do.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    which: Option<Which>,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Restart latency of a killed process, against a bare parent that runs the same start command
    Restart {
        #[arg(long, default_value_t = 200)]
        rounds: usize,
    },
    /// Status queries per second through HTTP, link and agent, against the store's own write rate
    Throughput {
        #[arg(long, default_value_t = 32)]
        concurrency: usize,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().which {
        Some(Which::Restart { rounds }) => restart::measure(rounds).await,
        Some(Which::Throughput { concurrency, seconds }) => throughput::measure(concurrency, seconds).await,
        None => {
            restart::measure(200).await?;
            throughput::measure(32, 10).await
        }
    }
}

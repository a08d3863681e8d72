//! Benchmarks: every figure is shown next to a floor or a peer measured in the same run, because machines differ
//! and are noisy. Run with `make bench`; see docs/benchmarks.md.

mod bench;
mod burst;
mod figures;
mod fleet;
mod idle;
mod many;
mod memory;
mod peers;
mod procs;
mod restart;
mod server;
mod survival;
mod throughput;
mod worker;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use rustix::process::{Pid, set_child_subreaper};

use bench::Bench;
use figures::Table;
use peers::Kind;

/// Benchmark Proctor against its peers and against what the machine itself can do.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
    /// Where `scripts/install-bench-peers` has put the peers
    #[arg(long, value_name = "DIR", default_value = "target/bench-peers", global = true)]
    peers: PathBuf,
    /// Only these take part [default: all that are installed]
    #[arg(long, value_name = "WHO", value_delimiter = ',', global = true)]
    only: Vec<Kind>,
    /// How results are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", global = true)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// From the SIGKILL of one of 100 processes until the next one runs
    Restart {
        #[arg(long, default_value_t = 200)]
        rounds: usize,
    },
    /// From the SIGKILL of all processes until all run again
    Burst {
        #[arg(long, default_value_t = 1000)]
        count: usize,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// A thousand starts, stops, kills, status queries, timeouts and failures in one call each, and evictions
    Many {
        #[arg(long, default_value_t = 1000)]
        count: usize,
    },
    /// CPU time of the supervisor while nothing happens, with limits on its processes
    Idle {
        #[arg(long, default_value_t = 1000)]
        count: usize,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Memory of the supervisor, settled and after all its processes were killed once
    Memory {
        #[arg(long, value_delimiter = ',', default_value = "100,1000")]
        counts: Vec<usize>,
    },
    /// What becomes of processes whose supervisor is killed and started again
    Survival,
    /// Status queries per second through HTTP, link and agent, beside the store's own write rate
    Throughput {
        #[arg(long, default_value_t = 32)]
        concurrency: usize,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// What large calls take at the server: the status of many hosts, a task for many, its polls
    Server {
        /// Only these [default: all]
        #[arg(long, value_name = "PART", value_delimiter = ',')]
        parts: Vec<server::Part>,
        #[arg(long, default_value_t = 10)]
        rounds: usize,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// What a backup of a large store costs the operations that run meanwhile
    Backup {
        #[arg(long, default_value_t = 1_000_000)]
        targets: usize,
        /// Operations per second
        #[arg(long, default_value_t = 200)]
        rate: u32,
    },
    /// Thousands of simulated agents: memory, idle CPU, operations on all beside NATS, a killed server
    Fleet(fleet::Options),
    /// The peers on NATS, in a process of their own
    #[command(hide = true)]
    NatsResponders(fleet::nats::Responders),
    /// All of them, one after the other, without `fleet`
    All,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Benchmark::NatsResponders(options) = arguments.benchmark {
        return fleet::nats::respond(options).await;
    }
    // Orphaned workers are ours to reap. Any pid turns it on.
    set_child_subreaper(Some(Pid::INIT))?;
    let bench = Bench::new(arguments.peers, arguments.only)?;
    let all = [
        Benchmark::Restart { rounds: 200 },
        Benchmark::Burst { count: 1000, rounds: 3 },
        Benchmark::Many { count: 1000 },
        Benchmark::Memory { counts: vec![100, 1000] },
        Benchmark::Survival,
        Benchmark::Idle { count: 1000, seconds: 60 },
        Benchmark::Idle { count: 10_000, seconds: 60 },
        Benchmark::Throughput { concurrency: 32, seconds: 10 },
        Benchmark::Server { parts: Vec::new(), rounds: 10, seconds: 10 },
        Benchmark::Backup { targets: 1_000_000, rate: 200 },
    ];
    let chosen = if matches!(arguments.benchmark, Benchmark::All) { Vec::from(all) } else { vec![arguments.benchmark] };
    for benchmark in chosen {
        for table in measure(&bench, benchmark).await? {
            match arguments.output {
                Output::Table => println!("{}", table.markdown()),
                Output::Json => println!("{}", table.json()),
            }
        }
    }
    Ok(())
}

async fn measure(bench: &Bench, benchmark: Benchmark) -> Result<Vec<Table>> {
    match benchmark {
        Benchmark::Restart { rounds } => restart::measure(bench, rounds).await,
        Benchmark::Burst { count, rounds } => burst::measure(bench, count, rounds).await,
        Benchmark::Many { count } => many::measure(count).await,
        Benchmark::Idle { count, seconds } => idle::measure(bench, count, seconds).await,
        Benchmark::Memory { counts } => memory::measure(bench, &counts).await,
        Benchmark::Survival => survival::measure(bench).await,
        Benchmark::Throughput { concurrency, seconds } => throughput::measure(concurrency, seconds).await,
        Benchmark::Server { parts, rounds, seconds } => server::measure(&parts, rounds, seconds).await,
        Benchmark::Backup { targets, rate } => server::backup::measure(targets, rate).await,
        Benchmark::Fleet(options) => fleet::measure(bench, &options).await,
        Benchmark::NatsResponders(_) | Benchmark::All => Ok(Vec::new()),
    }
}

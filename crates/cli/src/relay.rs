//! `proctor relay`: carries the agents of a cloud area to the server.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use proctor_relay::Options;
use proctor_runtime::Tasks;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::commands::CommandEnd;
use crate::config::Reloader;
use crate::serve::{self, StopSignal};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9077);
const STATE_DIR: &str = "/var/lib/proctor-relay";

#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// Configuration file, with a key for each flag [default: /etc/proctor/relay.toml, if it exists]
    #[arg(long, env = "PROCTOR_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The server's link; several where the server has several addresses
    #[arg(long, env = "PROCTOR_UPSTREAM", value_name = "HOST:PORT[,HOST:PORT]", value_parser = proctor_agent::parse_links)]
    pub(crate) upstream: Option<String>,
    /// Address to accept agents on
    #[arg(long, env = "PROCTOR_LISTEN", value_name = "ADDR", default_value_t = LISTEN)]
    pub(crate) listen: SocketAddr,
    /// A join token for relays; needed only for the first start, and visible in `ps`: prefer --token-file
    #[arg(long, env = "PROCTOR_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A file with the join token, for its owner alone; read where no token is given
    #[arg(long, env = "PROCTOR_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The cloud area whose agents it carries
    #[arg(long, env = "PROCTOR_CLOUD_ID", value_name = "N")]
    pub(crate) cloud_id: Option<u32>,
    /// Where the relay keeps its identity
    #[arg(long, env = "PROCTOR_STATE_DIR", value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Connections to the server
    #[arg(long, env = "PROCTOR_RELAY_CONNECTIONS", value_name = "N", default_value_t = 2)]
    pub(crate) connections: u32,
    /// Agents at the same time; others are turned away
    #[arg(long, env = "PROCTOR_RELAY_AGENTS_MAX", value_name = "N", default_value_t = 5000)]
    pub(crate) agents_max: u32,
}

impl RelayArgs {
    /// The server's address and the cloud area: they have no defaults.
    pub(crate) fn required(&self) -> Result<(Vec<String>, u32)> {
        let upstream = self.upstream.as_deref().context("--upstream is missing: where is the server's link?")?;
        let cloud = self.cloud_id.context("--cloud-id is missing: which cloud area does the relay serve?")?;
        Ok((upstream.split(',').map(str::to_owned).collect(), cloud))
    }
}

pub(crate) async fn run(args: RelayArgs, reloader: Option<Reloader>) -> Result<CommandEnd> {
    let mut stop = StopSignal::install()?;
    let hang_up = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let (upstreams, cloud) = args.required()?;
    let token = match (args.token, &args.token_file) {
        (Some(token), _) => Some(token),
        (None, Some(path)) if !proctor_relay::is_enrolled(&args.state_dir) => {
            let text = std::fs::read_to_string(path);
            Some(text.with_context(|| format!("cannot read the join token in {}", path.display()))?)
        }
        (None, _) => None,
    };
    let descriptors = proctor_host::descriptors::raise();
    let tasks = Tasks::default();
    let options = Options {
        upstreams,
        listen: args.listen,
        token,
        cloud,
        state_dir: args.state_dir,
        connections: args.connections,
        agents_max: args.agents_max,
    };
    tracing::info!(descriptors, agents_max = options.agents_max, cloud, "relay started");
    let ended = tokio::select! {
        () = stop.received() => Ok(CommandEnd::Success),
        ended = serve_until_failure(options, &tasks) => ended,
        never = reload_on(hang_up, reloader) => match never {},
    };
    proctor_runtime::systemd::notify("STOPPING=1");
    serve::end(&tasks).await;
    ended
}

/// SIGHUP reads the configuration again.
async fn reload_on(mut hang_up: Signal, mut reloader: Option<Reloader>) -> Infallible {
    loop {
        if hang_up.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        if let Some(reloader) = &mut reloader {
            reloader.reload_relay();
        }
    }
}

async fn serve_until_failure(options: Options, tasks: &Tasks) -> Result<CommandEnd> {
    let _relay = proctor_relay::start(options, tasks).await?;
    Err(tasks.failed().await.into())
}

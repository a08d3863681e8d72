//! `proctor swarm`: thousands of simulated agents against a real server, and a report at the end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use proctor_client::Client;
use proctor_model::HostKey;
use proctor_pki::JoinToken;
use proctor_runtime::Tasks;
use proctor_swarm::{Behaviour, Options, Stats};
use serde_json::{Value, json};

use crate::args::{Connection, parse_duration};
use crate::commands::CommandEnd;
use crate::output;
use crate::profile;
use crate::serve::StopSignal;

const PROGRESS_PERIOD: Duration = Duration::from_secs(5);
const END_MAX: Duration = Duration::from_secs(10);
/// Hosts per registration: a call that an ordinary server answers in well under a second.
const HOSTS_PER_CALL: usize = 5000;
/// Descriptors besides those of the agents' connections.
const DESCRIPTORS_SPARE: u64 = 64;

#[derive(Debug, Args)]
pub(crate) struct SwarmArgs {
    /// Join token that is good for as many uses as there are agents
    #[arg(long, env = "PROCTOR_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: JoinToken,
    /// Relays through which the agents connect, instead of --server
    #[arg(long, env = "PROCTOR_SWARM_VIA_RELAY", value_name = "HOST:PORT[,HOST:PORT]", value_parser = proctor_agent::parse_links)]
    via_relay: Option<String>,
    /// How many agents are simulated
    #[arg(long, env = "PROCTOR_SWARM_AGENTS", value_name = "N", default_value_t = 100)]
    agents: u32,
    /// Register so many processes on every simulated host, named swarm/p-0, swarm/p-1, …; needs --api
    #[arg(long, env = "PROCTOR_SWARM_PROCESSES", value_name = "K", default_value_t = 0, requires = "api")]
    processes_per_agent: u32,
    /// Address of the server's API, such as http://127.0.0.1:8080, to register processes
    #[arg(long, env = "PROCTOR_SWARM_API", value_name = "URL")]
    api: Option<String>,
    /// TOML file that says which agents are slow, fail, crash, drop out or have a wrong clock
    #[arg(long, env = "PROCTOR_SWARM_BEHAVIOUR", value_name = "FILE")]
    behaviour: Option<PathBuf>,
    /// Address of the first simulated host; the others follow it
    #[arg(long, env = "PROCTOR_SWARM_FIRST_IP", value_name = "IP", default_value_t = Ipv4Addr::new(10, 64, 0, 0))]
    first_ip: Ipv4Addr,
    /// Cloud area of the simulated hosts
    #[arg(long, env = "PROCTOR_CLOUD_ID", value_name = "N", default_value_t = 0)]
    cloud_id: u32,
    /// New connections per second while the swarm gathers
    #[arg(long, env = "PROCTOR_SWARM_CONNECT_RATE", value_name = "N", default_value_t = 200)]
    connect_rate: u32,
    /// Handshakes at the same time; with as many as agents, a restart of the server meets the whole fleet at once
    #[arg(long, env = "PROCTOR_SWARM_HANDSHAKES", value_name = "N", default_value_t = proctor_swarm::HANDSHAKES)]
    handshakes: u32,
    /// Keep the keys and certificates here, so that another run is the same agents
    #[arg(long, env = "PROCTOR_SWARM_STATE", value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write all that agents are told and do to this file, one JSON object a line
    #[arg(long, env = "PROCTOR_SWARM_RECORD", value_name = "FILE")]
    record: Option<PathBuf>,
    /// End after this time: a number with s, m, h or d [default: until SIGINT or SIGTERM]
    #[arg(long = "for", env = "PROCTOR_SWARM_FOR", value_name = "TIME", value_parser = parse_duration)]
    run_for: Option<Duration>,
}

pub(crate) async fn run(args: SwarmArgs, connection: &Connection) -> Result<CommandEnd> {
    let mut stop = StopSignal::install()?;
    check_descriptors(args.agents, proctor_host::descriptors::raise())?;
    let options = Options {
        servers: link_addresses(args.via_relay.as_deref(), connection).await?,
        token: args.token,
        agents: args.agents,
        behaviour: args.behaviour.map_or_else(|| Ok(Behaviour::default()), read_behaviour)?,
        first_ip: args.first_ip,
        cloud: args.cloud_id,
        connect_rate: args.connect_rate,
        handshakes: args.handshakes,
        state: args.state,
        record: args.record,
    };
    let api =
        args.api.map(|api| profile::connect(&Connection { server: Some(api), ..connection.clone() })).transpose()?;
    let hosts = options.hosts()?;
    let tasks = Tasks::default();
    let figures = proctor_swarm::start(&options, &tasks)?;
    tokio::select! {
        () = stop.received() => {}
        () = after(args.run_for) => {}
        never = show_progress(&figures, options.agents) => match never {},
        result = register_then_wait(api, &figures, &hosts, args.processes_per_agent) => match result? {},
    }
    tasks.end(END_MAX).await;
    output::print_or(connection.output, &figures.report(), || figures.to_string())?;
    Ok(if figures.has_violations() { CommandEnd::TargetFailed } else { CommandEnd::Success })
}

fn check_descriptors(agents: u32, limit: Option<u64>) -> Result<()> {
    match limit {
        Some(limit) if u64::from(agents) + DESCRIPTORS_SPARE > limit => {
            bail!(
                "{agents} agents need more than the {limit} descriptors that this process may open: raise `ulimit -n`, or run several swarms"
            )
        }
        Some(_) | None => Ok(()),
    }
}

/// `--server` is the link here, not the API: `HOST:PORT`.
async fn link_addresses(relays: Option<&str>, connection: &Connection) -> Result<Vec<SocketAddr>> {
    let advice = "give --server HOST:PORT, the address at which agents connect";
    let given = match (relays, &connection.server) {
        (Some(relays), _) => relays,
        (None, Some(server)) => server,
        (None, None) => bail!("no server is given: {advice}"),
    };
    if given.contains("://") {
        bail!("'{given}' is an address of the API: {advice}");
    }
    let mut addresses = Vec::new();
    for one in given.split(',') {
        let mut found =
            tokio::net::lookup_host(one).await.with_context(|| format!("cannot resolve '{one}': {advice}"))?;
        addresses.push(found.next().with_context(|| format!("'{one}' has no address"))?);
    }
    Ok(addresses)
}

fn read_behaviour(path: PathBuf) -> Result<Behaviour> {
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("cannot use {}", path.display()))
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn show_progress(figures: &Stats, agents: u32) -> std::convert::Infallible {
    let mut period = tokio::time::interval(PROGRESS_PERIOD);
    loop {
        period.tick().await;
        eprintln!("proctor: {}", figures.progress(agents));
    }
}

/// Registers the processes once every agent has enrolled: a host that never enrolled has no registrations.
async fn register_then_wait(
    api: Option<Client>,
    figures: &Arc<Stats>,
    hosts: &[HostKey],
    processes: u32,
) -> Result<std::convert::Infallible> {
    let Some(api) = api else { return std::future::pending().await };
    while (figures.counters.enrolled.load(Ordering::Relaxed) as usize) < hosts.len() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for number in 0..processes {
        for hosts in hosts.chunks(HOSTS_PER_CALL) {
            let rows = api.register_or_update(&registration(number, hosts)).await?;
            if let Some(row) = rows.iter().find(|row| row.code != 0) {
                bail!("cannot register swarm/p-{number} on {}: {}", row.host, row.localized.message);
            }
        }
    }
    eprintln!("proctor: registered {processes} processes on each of {} hosts", hosts.len());
    std::future::pending().await
}

fn registration(number: u32, hosts: &[HostKey]) -> Value {
    let hosts: Vec<Value> =
        hosts.iter().map(|host| json!({"ip": host.ip, "bk_cloud_id": host.cloud, "bk_supplier_id": 0})).collect();
    let name = format!("p-{number}");
    json!({
        "meta": {"namespace": "swarm", "name": name, "labels": {"swarm": "true"}},
        "hosts": hosts,
        "spec": {
            "identity": {"proc_name": name, "setup_path": "/opt/swarm", "pid_path": format!("/run/swarm/{name}.pid"), "user": "root"},
            "control": {"start_cmd": "./start.sh", "stop_cmd": "./stop.sh"},
            "resource": {"cpu": 0, "mem": 0},
            "monitor_policy": {"auto_type": 1},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_agents_than_descriptors_are_refused() {
        let refused = check_descriptors(1000, Some(1024)).unwrap_err().to_string();

        assert!(refused.contains("1000 agents") && refused.contains("1024 descriptors"), "{refused}");
        assert!(check_descriptors(960, Some(1024)).is_ok());
        assert!(check_descriptors(60_000, None).is_ok());
    }

    #[tokio::test]
    async fn the_link_is_an_address_without_a_scheme() {
        let with = |server: &str| Connection { server: Some(server.to_owned()), ..Connection::default() };

        let relays = Some("127.0.0.1:9077,127.0.0.1:9078");
        assert_eq!(link_addresses(None, &with("127.0.0.1:9077")).await.unwrap(), ["127.0.0.1:9077".parse().unwrap()]);
        assert_eq!(link_addresses(relays, &Connection::default()).await.unwrap().len(), 2);
        let api = link_addresses(None, &with("http://127.0.0.1:8080")).await.unwrap_err().to_string();
        assert!(api.contains("is an address of the API") && api.contains("--server HOST:PORT"), "{api}");
        let nothing = link_addresses(None, &Connection::default()).await.unwrap_err().to_string();
        assert!(nothing.contains("--server HOST:PORT"), "{nothing}");
    }
}

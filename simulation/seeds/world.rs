//! The fleet of a simulation: the real server, relays and link in one thread, simulated agents, and bad connections
//! between them.
//!
//! Promised: a killed server or relay has no effect from that moment on: it stores nothing more, and its
//! connections are reset. Absent: the host of an agent, and the real agent's driver; see `proctor_swarm`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proctor_pki::JoinToken;
use proctor_runtime::Tasks;
use proctor_server::admin::{self, AppOptions, TokenRequest};
use proctor_server::api::Settings;
use proctor_server::control::Retention;
use proctor_server::gateway::LinkPolicy;
use proctor_server::{Options, Server};
use proctor_store::Store;
use proctor_store::sqlite::SqliteStore;
use proctor_swarm::Behaviour;
use proctor_testkit::{Api, Direction, FaultProxy, HostRecord, read_swarm_record};
use proctor_traces::Traces;
use serde_json::json;

const APP: &str = "simulation";
const SECRET: &str = "simulated-secret";
/// The cloud area behind the relays.
pub(crate) const AREA: u32 = 7;
/// Time for what a killed program still does without effect.
const END_MAX: Duration = Duration::from_secs(60);
const TOKEN_TTL: Duration = Duration::from_secs(24 * 3600);
/// In simulated time.
const GATHER_MAX: Duration = Duration::from_secs(300);
const NO_END: u64 = u64::MAX;
/// Bytes a second of a line without faults.
pub(crate) const FAST: u64 = 100_000_000;

/// One life of the server.
struct ServerLife {
    server: Server,
    tasks: Tasks,
    store: Arc<dyn Store>,
    writes_left: Arc<AtomicU64>,
}

struct RelayLife {
    relay: proctor_relay::Relay,
    tasks: Tasks,
}

/// A relay, alive or not.
struct RelaySite {
    options: proctor_relay::Options,
    life: Option<RelayLife>,
    upstream: FaultProxy,
}

/// A simulated agent and its ways to the server or its relays.
pub(crate) struct AgentSite {
    pub(crate) host: String,
    pub(crate) ways: Vec<FaultProxy>,
    record: PathBuf,
}

/// How large a fleet is.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    /// The behaviour of each agent that is connected directly, and of each behind the relays.
    pub(crate) direct: Vec<Behaviour>,
    pub(crate) relayed: Vec<Behaviour>,
    pub(crate) relays: usize,
    pub(crate) processes: usize,
    /// Of the server's disk.
    pub(crate) latency: Duration,
}

pub(crate) struct World {
    dir: tempfile::TempDir,
    latency: Duration,
    http: SocketAddr,
    link: SocketAddr,
    server: Option<ServerLife>,
    pub(crate) clients: FaultProxy,
    relays: Vec<RelaySite>,
    pub(crate) agents: Vec<AgentSite>,
    swarm: Tasks,
    pub(crate) api: Api,
}

impl World {
    /// A fleet that is connected and has its processes registered.
    pub(crate) async fn start(size: &Size) -> Result<Self> {
        // In memory: the disk is simulated.
        let dir = tempfile::Builder::new().prefix("proctor-seed-").tempdir_in("/dev/shm")?;
        drop(SqliteStore::open(&store_path(dir.path())).await?);
        let any: SocketAddr = "127.0.0.1:0".parse()?;
        let life = start_server(dir.path(), any, any, size.latency).await?;
        let (http, link) = (life.server.http, life.server.link);
        let options = AppOptions { trusted: true, signing: false };
        admin::put_app(&life.store, &APP.parse()?, SECRET, options).await?;
        let tokens = Tokens::create(&life.store).await?;
        let clients = FaultProxy::start(http.port()).await?;
        // A new connection per call: the pool's timers would use the real clock.
        let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).pool_max_idle_per_host(0).build()?;
        let authorization = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin"}).to_string();
        let api = Api::new(client, format!("http://127.0.0.1:{}", clients.port), authorization);
        let mut world = Self {
            dir,
            latency: size.latency,
            http,
            link,
            server: Some(life),
            clients,
            relays: Vec::new(),
            agents: Vec::new(),
            swarm: Tasks::default(),
            api,
        };
        for number in 0..size.relays {
            world.add_relay(number, &tokens.relay).await?;
        }
        for behaviour in &size.direct {
            let way = FaultProxy::start(link.port()).await?;
            world.add_agent(behaviour, 0, vec![way], &tokens.agent)?;
        }
        for behaviour in &size.relayed {
            let mut ways = Vec::new();
            for relay in &world.relays {
                ways.push(FaultProxy::start(relay.options.listen.port()).await?);
            }
            world.add_agent(behaviour, AREA, ways, &tokens.area)?;
        }
        world.until_connected().await?;
        world.register(size.processes).await?;
        Ok(world)
    }

    async fn add_relay(&mut self, number: usize, token: &JoinToken) -> Result<()> {
        let upstream = FaultProxy::start(self.link.port()).await?;
        let mut options = proctor_relay::Options {
            upstreams: vec![format!("127.0.0.1:{}", upstream.port)],
            listen: "127.0.0.1:0".parse()?,
            token: Some(token.to_string()),
            cloud: AREA,
            state_dir: self.dir.path().join(format!("relay-{number}")),
            connections: 1,
            agents_max: 100,
        };
        let life = start_relay(&options).await?;
        options.listen = life.relay.address;
        self.relays.push(RelaySite { options, life: Some(life), upstream });
        Ok(())
    }

    fn add_agent(&mut self, behaviour: &Behaviour, cloud: u32, ways: Vec<FaultProxy>, token: &JoinToken) -> Result<()> {
        let number = self.agents.len();
        let record = self.dir.path().join(format!("agent-{number}.jsonl"));
        let options = proctor_swarm::Options {
            servers: ways.iter().map(|way| SocketAddr::from(([127, 0, 0, 1], way.port))).collect(),
            token: token.clone(),
            agents: 1,
            behaviour: behaviour.clone(),
            first_ip: format!("10.64.0.{}", number + 1).parse()?,
            cloud,
            connect_rate: 1000,
            handshakes: 4,
            state: None,
            record: Some(record.clone()),
        };
        let host = options.hosts()?[0].to_string();
        proctor_swarm::start(&options, &self.swarm)?;
        self.agents.push(AgentSite { host, ways, record });
        Ok(())
    }

    async fn until_connected(&self) -> Result<()> {
        let begun = tokio::time::Instant::now();
        while self.sessions() < self.agents.len() {
            ensure!(begun.elapsed() < GATHER_MAX, "only {} agents are connected", self.sessions());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    pub(crate) fn sessions(&self) -> usize {
        self.server.as_ref().map_or(0, |life| life.server.control.session_count())
    }

    async fn register(&self, processes: usize) -> Result<()> {
        let hosts: Vec<_> = self.agents.iter().map(|agent| agent.host.clone()).collect();
        for number in 0..processes {
            let name = format!("p-{number}");
            let hosts: Vec<_> = hosts
                .iter()
                .filter_map(|host| host.split_once(':'))
                .map(|(cloud, ip)| json!({"ip": ip, "bk_cloud_id": cloud.parse::<u32>().unwrap_or(0)}))
                .collect();
            let body = json!({
                "meta": {"namespace": "swarm", "name": name},
                "hosts": hosts,
                "spec": {
                    "identity": {"proc_name": name, "setup_path": "/opt", "pid_path": format!("/run/{name}.pid"), "user": "root"},
                    "control": {"start_cmd": "./start.sh", "stop_cmd": "./stop.sh"},
                    "resource": {"cpu": 0, "mem": 0},
                    "monitor_policy": {"auto_type": 1},
                },
            });
            let answer = self.api.post("/api/v1/processes?update=true", &body).await.context("no answer")?;
            let is_registered = answer["rows"].as_array().is_some_and(|rows| rows.iter().all(|row| row["code"] == 0));
            ensure!(is_registered, "not registered: {answer}");
        }
        Ok(())
    }

    // Faults.

    /// After this many more writes the store accepts nothing more from this life.
    pub(crate) fn kill_server_at_write(&self, writes: u64) {
        if let Some(life) = &self.server {
            life.writes_left.store(writes, Ordering::Relaxed);
        }
    }

    /// Whether its last write is over.
    pub(crate) fn is_server_at_its_end(&self) -> bool {
        self.server.as_ref().is_some_and(|life| life.writes_left.load(Ordering::Relaxed) == 0)
    }

    pub(crate) fn is_server_up(&self) -> bool {
        self.server.is_some()
    }

    pub(crate) async fn kill_server(&mut self) {
        let Some(ServerLife { server, tasks, store, writes_left }) = self.server.take() else { return };
        writes_left.store(0, Ordering::Relaxed);
        self.clients.reset_all();
        self.agents.iter().flat_map(|agent| &agent.ways).for_each(FaultProxy::reset_all);
        self.relays.iter().for_each(|relay| relay.upstream.reset_all());
        drop(server);
        tasks.end(END_MAX).await;
        drop(store);
    }

    pub(crate) async fn start_server(&mut self) -> Result<()> {
        if self.server.is_none() {
            self.server = Some(start_server(self.dir.path(), self.http, self.link, self.latency).await?);
        }
        Ok(())
    }

    pub(crate) fn relay_count(&self) -> usize {
        self.relays.len()
    }

    pub(crate) fn upstream(&self, relay: usize) -> &FaultProxy {
        &self.relays[relay].upstream
    }

    pub(crate) async fn kill_relay(&mut self, number: usize) {
        let Some(RelayLife { relay, tasks }) = self.relays[number].life.take() else { return };
        self.relays[number].upstream.reset_all();
        self.agents
            .iter()
            .filter_map(|agent| agent.ways.get(number).filter(|_| agent.ways.len() > 1))
            .for_each(FaultProxy::reset_all);
        drop(relay);
        tasks.end(END_MAX).await;
    }

    pub(crate) async fn start_relay(&mut self, number: usize) -> Result<()> {
        let site = &mut self.relays[number];
        if site.life.is_none() {
            site.life = Some(start_relay(&site.options).await?);
        }
        Ok(())
    }

    /// Everything works again.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        let ways = self.agents.iter().flat_map(|agent| &agent.ways);
        for way in ways.chain(self.relays.iter().map(|relay| &relay.upstream)).chain([&self.clients]) {
            for direction in [Direction::ToServer, Direction::ToAgent] {
                way.hold(direction, false);
            }
            way.set_delay(Duration::ZERO, Duration::ZERO);
            way.set_bytes_per_second(FAST);
        }
        if self.is_server_at_its_end() {
            self.kill_server().await;
        }
        if let Some(life) = &self.server {
            life.writes_left.store(NO_END, Ordering::Relaxed);
        }
        self.start_server().await?;
        for number in 0..self.relays.len() {
            self.start_relay(number).await?;
        }
        Ok(())
    }

    /// Ends everything; returns what happened on the hosts.
    pub(crate) async fn end(mut self) -> Result<Vec<HostRecord>> {
        self.swarm.end(END_MAX).await;
        for number in 0..self.relays.len() {
            self.kill_relay(number).await;
        }
        self.kill_server().await;
        let mut records = Vec::new();
        for agent in &self.agents {
            records.extend(read_swarm_record(&agent.record)?);
        }
        // Stable: what happened to one agent keeps its order.
        records.sort_by_key(|record| record.at_ms);
        Ok(records)
    }
}

struct Tokens {
    agent: JoinToken,
    area: JoinToken,
    relay: JoinToken,
}

impl Tokens {
    async fn create(store: &Arc<dyn Store>) -> Result<Self> {
        let request = |cloud| TokenRequest::new(100, TOKEN_TTL, cloud);
        Ok(Self {
            agent: admin::create_token(store, request(None)?).await?.0,
            area: admin::create_token(store, request(Some(AREA))?).await?.0,
            relay: admin::create_token(store, request(Some(AREA))?.for_relays(true)?).await?.0,
        })
    }
}

fn store_path(dir: &Path) -> PathBuf {
    dir.join("proctor.db")
}

async fn start_server(dir: &Path, http: SocketAddr, link: SocketAddr, latency: Duration) -> Result<ServerLife> {
    let (writes_left, tasks) = (Arc::new(AtomicU64::new(NO_END)), Tasks::default());
    let store = SqliteStore::open_simulated(&store_path(dir), writes_left.clone(), latency).await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let options = Options {
        http,
        link,
        wait_for: None,
        border: Settings::default(),
        tls: None,
        retention: Retention::default(),
        link_policy: LinkPolicy::default(),
        traces: Traces::default(),
    };
    let server = Server::start(options, store.clone(), &tasks).await.context("cannot start the server")?;
    Ok(ServerLife { server, tasks, store, writes_left })
}

async fn start_relay(options: &proctor_relay::Options) -> Result<RelayLife> {
    let tasks = Tasks::default();
    let relay = proctor_relay::start(options.clone(), &tasks).await.context("cannot start a relay")?;
    Ok(RelayLife { relay, tasks })
}

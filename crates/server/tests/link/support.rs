//! A server on the loopback, and agents that consist of nothing but their key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_model::{AgentId, AgentState, BootId, Event, EventKind, HostFacts, HostKey};
use proctor_pki::{AgentKey, Authority, JoinToken};
use proctor_runtime::{Tasks, clock};
use proctor_server::admin::{self, TokenRequest};
use proctor_server::api::Settings;
use proctor_server::control::Retention;
use proctor_server::gateway::LinkPolicy;
use proctor_server::{Options, Server};
use proctor_store::sqlite::SqliteStore;
use proctor_store::{EventQuery, Store};
use proctor_traces::Traces;
use proctor_wire::{AgentCodec, FromAgent, FromServer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::codec::Framed;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) store: Arc<dyn Store>,
    policy: LinkPolicy,
    tasks: Tasks,
    _dir: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(LinkPolicy::default()).await
    }

    pub(crate) async fn with(policy: LinkPolicy) -> Self {
        let dir = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("proctor.db")).await.unwrap());
        let (server, tasks) = start(&store, policy).await;
        Self { server, store, policy, tasks, _dir: dir }
    }

    /// The server ends, and another one starts on the same store.
    pub(crate) async fn restart(&mut self) {
        assert!(self.tasks.end(PATIENCE).await);
        (self.server, self.tasks) = start(&self.store, self.policy).await;
    }

    pub(crate) async fn end(self) {
        assert!(self.tasks.end(PATIENCE).await);
    }

    /// A token for many hosts, or for the one that is named.
    pub(crate) async fn token(&self, host: Option<&str>) -> JoinToken {
        let host = host.map(|host| host.parse().unwrap());
        let uses = if host.is_some() { 1 } else { 100 };
        let request = TokenRequest::new(uses, Duration::from_secs(600), None).unwrap().naming(host).unwrap();
        admin::create_token(&self.store, request).await.unwrap().0
    }

    /// An agent with a key of its own that has enrolled.
    pub(crate) async fn agent(&self, host: &str, id: &str) -> Agent {
        let mut agent = Agent::new(host, id);
        agent.enrol(self, &self.token(None).await).await.unwrap();
        agent
    }

    /// The value of a series, as a scrape shows it; None where it is not there.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.server.http).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Of these kinds, the oldest first.
    pub(crate) async fn events(&self, kinds: &[EventKind]) -> Vec<Event> {
        let query = EventQuery { after: Some(0), kinds: kinds.to_vec(), limit: 1000, ..EventQuery::default() };
        self.store.events(&query).await.unwrap().events.into_iter().map(|stored| stored.event).collect()
    }

    pub(crate) async fn audited(&self, action: &str) -> Vec<proctor_store::AuditDraft> {
        let query = proctor_store::AuditQuery { action: Some(action.to_owned()), limit: 1000, ..Default::default() };
        self.store.audit(&query).await.unwrap().into_iter().map(|entry| entry.draft).collect()
    }
}

async fn start(store: &Arc<dyn Store>, link_policy: LinkPolicy) -> (Server, Tasks) {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let tasks = Tasks::default();
    let options = Options {
        http: loopback,
        link: loopback,
        wait_for: None,
        border: Settings { metrics_from: "127.0.0.0/8".parse().unwrap(), ..Settings::default() },
        tls: None,
        retention: Retention::default(),
        link_policy,
        traces: Traces::default(),
    };
    (Server::start(options, store.clone(), &tasks).await.unwrap(), tasks)
}

pub(crate) type Link = Framed<TlsStream<TcpStream>, AgentCodec>;

/// What a state directory holds.
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) host: HostKey,
    pub(crate) key: AgentKey,
    pub(crate) certificate: Option<(String, String)>,
    pub(crate) signer_der: Option<Vec<u8>>,
    pub(crate) seen_epoch: Option<u64>,
    pub(crate) seen_generation: u64,
    pub(crate) answers_usage: bool,
    /// Of its clock; None where it does not tell its time.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// None of an older agent.
    pub(crate) state: Option<AgentState>,
}

impl Agent {
    pub(crate) fn new(host: &str, id: &str) -> Self {
        let key = AgentKey::generate().unwrap();
        Self {
            id: id.parse().unwrap(),
            host: host.parse().unwrap(),
            key,
            certificate: None,
            signer_der: None,
            seen_epoch: Some(0),
            seen_generation: 0,
            answers_usage: true,
            clock_ahead_ms: None,
            state: None,
        }
    }

    /// A copy of the state directory as it is now.
    pub(crate) fn copy(&self) -> Self {
        Self {
            id: self.id.clone(),
            host: self.host,
            key: AgentKey::from_pem(&self.key.to_pem()).unwrap(),
            certificate: self.certificate.clone(),
            signer_der: self.signer_der.clone(),
            seen_epoch: self.seen_epoch,
            seen_generation: self.seen_generation,
            answers_usage: self.answers_usage,
            clock_ahead_ms: self.clock_ahead_ms,
            state: self.state,
        }
    }

    /// The reason where it is refused.
    pub(crate) async fn enrol(&mut self, world: &World, token: &JoinToken) -> Result<(), String> {
        let config = proctor_pki::enrol_config(&token.authority_fingerprint).unwrap();
        let mut frames = dial(world, config, AgentCodec::enrolment()).await;
        let request = FromAgent::Enrol {
            token_id: token.id.clone(),
            token_secret: token.secret.clone(),
            csr_der: self.key.csr_der().unwrap(),
            agent: Some(self.id.clone()),
            host: self.host,
        };
        frames.send(request).await.unwrap();
        match next(&mut frames).await {
            FromServer::Enrolled { agent, certificate_pem, authority_pem, signer_der } => {
                self.signer_der = signer_der;
                assert_eq!(agent, self.id);
                self.certificate = Some((certificate_pem, authority_pem));
                Ok(())
            }
            FromServer::Refused { reason, retry } => {
                assert!(!retry, "{reason}");
                Err(reason)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The epoch with the open session, or the reason of the refusal with whether to try again.
    pub(crate) async fn connect(&self, world: &World, run: &str) -> Result<(u64, Link), (String, bool)> {
        self.connect_with(world, self.tls_config(), run).await
    }

    pub(crate) fn tls_config(&self) -> rustls::ClientConfig {
        let (certificate, authority) = self.certificate.as_ref().unwrap();
        proctor_pki::session_config(authority, certificate, &self.key).unwrap()
    }

    /// As [`Self::connect`], with a configuration that may have tickets.
    pub(crate) async fn connect_with(
        &self,
        world: &World,
        config: impl Into<Arc<rustls::ClientConfig>>,
        run: &str,
    ) -> Result<(u64, Link), (String, bool)> {
        let (answer, frames) = self.greet(world, config, run).await;
        match answer {
            FromServer::Welcome { epoch, .. } => Ok((epoch, frames)),
            FromServer::Refused { reason, retry } => Err((reason, retry)),
            other => panic!("{other:?}"),
        }
    }

    /// The server's answer to its hello.
    pub(crate) async fn greet(
        &self,
        world: &World,
        config: impl Into<Arc<rustls::ClientConfig>>,
        run: &str,
    ) -> (FromServer, Link) {
        let mut frames = dial(world, config, AgentCodec::new()).await;
        let hello = FromAgent::Hello {
            agent: self.id.clone(),
            boot: BootId::from("boot"),
            facts: HostFacts::default(),
            seen_generation: self.seen_generation,
            nonce: run.as_bytes().to_vec(),
            time_ms: self.clock_ahead_ms.map(|ahead_ms| clock::unix_millis() + ahead_ms),
            seen_epoch: self.seen_epoch,
            answers_usage: self.answers_usage,
            answers_logs: self.answers_usage,
            challenge: None,
            upgrades: false,
            state: self.state,
        };
        frames.send(hello).await.unwrap();
        (next(&mut frames).await, frames)
    }

    /// What a stranger shows who has a certificate for this agent from an authority of its own.
    pub(crate) fn forged(&self) -> rustls::ClientConfig {
        let now = jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap();
        let authority = Authority::load(&Authority::generate(now).unwrap()).unwrap();
        let (key, hour) = (AgentKey::generate().unwrap(), Duration::from_secs(3600));
        let certificate = authority.issue_agent(&key.csr_der().unwrap(), &self.id, now, hour).unwrap();
        let (_, of_server) = self.certificate.as_ref().unwrap();
        proctor_pki::session_config(of_server, &certificate, &key).unwrap()
    }

    /// As [`Self::connect`], and the state directory records it.
    pub(crate) async fn session(&mut self, world: &World, run: &str) -> Link {
        let (epoch, mut frames) = self.connect(world, run).await.unwrap();
        self.seen_epoch = Some(epoch);
        frames.send(FromAgent::Settled { epoch, recorded: true }).await.unwrap();
        frames
    }
}

pub(crate) async fn dial(world: &World, config: impl Into<Arc<rustls::ClientConfig>>, codec: AgentCodec) -> Link {
    let tcp = TcpStream::connect(world.server.link).await.unwrap();
    let connector = TlsConnector::from(config.into());
    Framed::new(connector.connect(proctor_pki::server_name(), tcp).await.unwrap(), codec)
}

pub(crate) async fn next(frames: &mut Link) -> FromServer {
    tokio::time::timeout(PATIENCE, frames.next()).await.expect("in time").expect("a message").unwrap()
}

/// Closes the connection, and returns when the server has noticed.
pub(crate) async fn leave(world: &World, agent: &Agent, link: Link) {
    drop(link);
    until("the session has ended", || async { !world.server.control.is_connected(&agent.id) }).await;
}

pub(crate) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let held = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

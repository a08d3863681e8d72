//! One simulated agent on a real connection: TCP, mutual TLS, enrolment and sessions, again and again.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use proctor_model::{AgentId, AgentState, HostFacts, HostKey};
use proctor_pki::{
    AgentKey, CommandCheck, ControlTrust, HelloTerms, JoinToken, ReportSeal, SessionTerms, Untrusted, VerifiedRoots,
};
use proctor_runtime::{Backoff, clock, prepare_link};
use proctor_wire::{
    ABSENT_WAIT_MAX, AgentCodec, Counted, FromAgent, FromServer, Incoming, Lost, NoSession, Outgoing, REFUSED_WAIT_MAX,
    REFUSED_WAIT_MIN, SILENT_BEATS_MAX, STAY_AWAY_MAX, WireError, encode_part, ends, framed, stay_away_max,
};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, HandshakeKind};
use tokio_util::codec::Framed;
use uuid::Uuid;

use crate::agent::{Now, SimAgent};
use crate::identity::{Identities, Identity};
use crate::stats::{Latency, Stats, Violation};

/// For an attempt, the wait for its turn in this process included; for the server to be reached.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// As of a real agent.
const CROWDED_WAIT: Duration = Duration::from_millis(500);
/// As of a real agent.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(120);
/// As of a real agent: messages are signed together up to this.
const SIGNED_BYTES_MAX: usize = 32 * 1024;
/// A session of this length was a success.
const STEADY: Duration = Duration::from_secs(30);

/// What all agents of a swarm share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Enrolments have turns of their own: with common ones, agents that enrol and connect one after the other would all
    /// be connected to every second server.
    pub(crate) enrol_at: Turns,
    pub(crate) connect_at: Turns,
    pub(crate) token: JoinToken,
    pub(crate) figures: Arc<Stats>,
    pub(crate) identities: Identities,
    /// Handshakes under way at the same time: they are what costs this process most.
    pub(crate) handshakes: Semaphore,
    pub(crate) started: Instant,
    /// The server signs once for many agents, and those of a swarm share a machine with it.
    pub(crate) verified: Arc<VerifiedRoots>,
}

/// Servers that are taken by turns.
#[derive(Debug)]
pub(crate) struct Turns {
    servers: Vec<SocketAddr>,
    taken: AtomicUsize,
}

impl Turns {
    /// There is at least one.
    pub(crate) fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, taken: AtomicUsize::new(0) }
    }

    fn next(&self) -> SocketAddr {
        self.servers[self.taken.fetch_add(1, Ordering::Relaxed) % self.servers.len()]
    }
}

impl Shared {
    /// The moment of a time since the start.
    fn at(&self, since_start: Duration) -> tokio::time::Instant {
        (self.started + since_start).into()
    }

    pub(crate) fn now(&self) -> Now {
        Now { since_start: self.started.elapsed(), unix_ms: clock::unix_millis() }
    }
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Link(#[from] NoSession),
    #[error("the identity cannot be used")]
    Pki(#[from] proctor_pki::PkiError),
    #[error("the server's message failed verification")]
    Untrusted(#[from] Untrusted),
    #[error("dropped on purpose")]
    Dropped,
    #[error("killed on purpose")]
    Killed,
}

impl From<Lost> for Ended {
    fn from(lost: Lost) -> Self {
        Self::Link(lost.into())
    }
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Link(error.into())
    }
}

impl From<WireError> for Ended {
    fn from(error: WireError) -> Self {
        Self::Link(error.into())
    }
}

type Stream = TlsStream<Counted<TcpStream>>;
type Frames = Framed<Stream, AgentCodec>;
type Sender = Outgoing<Stream, FromServer, FromAgent>;
type Receiver = Incoming<Stream, FromServer, FromAgent>;

/// A session that the server has opened.
struct Opened {
    sender: Sender,
    receiver: Receiver,
    epoch: u64,
    beat: Duration,
    signatures: Signatures,
    /// What the agent said that it has, where the server has the same.
    known: Option<AgentState>,
}

/// What the two ends sign, as far as the server does and asks for it.
#[derive(Debug, Default)]
struct Signatures {
    check: Option<CommandCheck>,
    reports: Option<ReportSeal>,
}

/// What all sessions of one agent share.
#[derive(Debug, Default)]
struct Known {
    trust: Option<ControlTrust>,
    /// When the last session ended, and the heartbeat interval that it had.
    lost_at: Option<Instant>,
    beat: Option<Duration>,
    /// With the tickets of earlier sessions.
    tls: Option<Arc<ClientConfig>>,
}

/// As of a real agent: a server that is not there is looked for often, one that closes before a word is let alone.
#[derive(Debug)]
struct Waits {
    short: Backoff,
    crowded: Backoff,
    refused: Backoff,
}

impl Waits {
    fn new() -> Self {
        Self {
            short: Backoff::new(Duration::from_millis(100), ABSENT_WAIT_MAX),
            crowded: Backoff::new(CROWDED_WAIT, STAY_AWAY_MAX),
            refused: Backoff::new(REFUSED_WAIT_MIN, REFUSED_WAIT_MAX),
        }
    }

    fn after(&mut self, ended: &Ended, had_session: bool) -> Duration {
        let is_crowded = match ended {
            Ended::Link(NoSession::Silent | NoSession::Closed) => !had_session,
            Ended::Link(NoSession::Connect(error)) => {
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            }
            Ended::Link(_) | Ended::Pki(_) | Ended::Untrusted(_) | Ended::Dropped | Ended::Killed => false,
        };
        if is_crowded { self.crowded.next_wait() } else { self.short.next_wait() }
    }
}

/// Enrols once and then keeps a session open, until the swarm ends. One that may not enrol gives up.
pub(crate) async fn run(shared: Arc<Shared>, host: HostKey, mut agent: SimAgent) {
    let identity = match shared.identities.take(&host) {
        Some(identity) => {
            Stats::count(&shared.figures.counters.enrolled);
            identity
        }
        None => match enrolled(&shared, host).await {
            Some(identity) => identity,
            None => return,
        },
    };
    let mut waits = Waits::new();
    let (mut nonce, mut known) = (Uuid::new_v4(), Known::default());
    loop {
        let opened = Instant::now();
        let ended = Box::pin(session(&shared, &identity, host, nonce, &mut agent, &mut known)).await;
        let had_session = known.lost_at.is_some_and(|lost_at| lost_at > opened);
        if let Some(beat) = known.beat.filter(|_| had_session) {
            waits.crowded = Backoff::new(CROWDED_WAIT, stay_away_max(beat));
            waits.refused.reset();
        }
        if opened.elapsed() > STEADY {
            waits.short.reset();
        }
        if matches!(ended, Ended::Killed) {
            agent.handle_killed();
            nonce = Uuid::new_v4();
        }
        if let Ended::Untrusted(untrusted) = &ended {
            tracing::error!(%host, why = %proctor_runtime::chain(untrusted), "refused message from server");
            agent.violated(shared.now(), Violation::Unsigned);
        }
        tokio::time::sleep(wait_after(&shared, host, ended, had_session, &mut waits)).await;
    }
}

/// Tries until the agent has an identity; None where the server turned it away.
async fn enrolled(shared: &Shared, host: HostKey) -> Option<Identity> {
    let key = match AgentKey::generate() {
        Ok(key) => key,
        Err(error) => {
            tracing::error!(%host, %error, "cannot generate a key");
            return None;
        }
    };
    let agent = AgentId::from_uuid(Uuid::now_v7());
    let mut waits = Waits::new();
    let (certificate_pem, authority_pem) = loop {
        match bounded(shared, Box::pin(enrol(shared, host, &agent, &key))).await {
            Ok(certificates) => break certificates,
            Err(Ended::Link(NoSession::Refused { reason, retry: false })) => {
                turned_away(shared, host, &reason);
                return None;
            }
            Err(ended) => tokio::time::sleep(wait_after(shared, host, ended, false, &mut waits)).await,
        }
    };
    let identity = Identity { agent, key, certificate_pem, authority_pem };
    if let Err(error) = shared.identities.keep(host, &identity) {
        tracing::error!(%host, %error, "cannot save identity for the next run");
    }
    Stats::count(&shared.figures.counters.enrolled);
    Some(identity)
}

/// The server refused it for good.
fn turned_away(shared: &Shared, host: HostKey, reason: &str) {
    tracing::warn!(%host, %reason, "agent turned away");
    Stats::count(&shared.figures.counters.turned_away);
}

/// As of a real agent.
fn wait_after(shared: &Shared, host: HostKey, ended: Ended, had_session: bool, waits: &mut Waits) -> Duration {
    match ended {
        Ended::Link(NoSession::Refused { reason, retry: false }) => {
            turned_away(shared, host, &reason);
            waits.refused.next_wait()
        }
        Ended::Link(NoSession::Busy(wait)) => {
            Stats::count(&shared.figures.counters.told_busy);
            wait.min(BUSY_WAIT_MAX)
        }
        Ended::Dropped | Ended::Killed => Duration::ZERO,
        Ended::Link(_) | Ended::Pki(_) | Ended::Untrusted(_) => {
            tracing::debug!(%host, why = %proctor_runtime::chain(&ended), "no session");
            waits.after(&ended, had_session)
        }
    }
}

/// A certificate for the key, and that of the authority.
async fn enrol(shared: &Shared, host: HostKey, agent: &AgentId, key: &AgentKey) -> Result<(String, String), Ended> {
    let _permit = shared.handshakes.acquire().await.expect("the semaphore is never closed");
    let begun = Instant::now();
    let config = proctor_pki::enrol_config(&shared.token.authority_fingerprint)?;
    let mut frames = framed(dial(shared.enrol_at.next(), Arc::new(config)).await?, AgentCodec::enrolment());
    let request = FromAgent::Enrol {
        token_id: shared.token.id.clone(),
        token_secret: shared.token.secret.clone(),
        csr_der: key.csr_der()?,
        agent: Some(agent.clone()),
        host,
    };
    frames.send(request).await?;
    let answer = frames.next().await.ok_or(NoSession::Closed)??;
    let FromServer::Enrolled { certificate_pem, authority_pem, .. } = answer else {
        return Err(NoSession::answered(answer).into());
    };
    shared.figures.took(Latency::Enrol, begun.elapsed());
    Ok((certificate_pem, authority_pem))
}

/// One session, from the handshake to its end.
async fn session(
    shared: &Shared,
    identity: &Identity,
    host: HostKey,
    nonce: Uuid,
    agent: &mut SimAgent,
    known: &mut Known,
) -> Ended {
    let opened = match bounded(shared, Box::pin(open(shared, identity, host, nonce, agent, known))).await {
        Ok(opened) => opened,
        Err(ended) => return ended,
    };
    let counters = &shared.figures.counters;
    Stats::count(&counters.sessions);
    Stats::count(&counters.connected);
    if let Some(lost_at) = known.lost_at {
        shared.figures.took(Latency::Return, lost_at.elapsed());
    }
    known.beat = Some(opened.beat);
    agent.handle_connected(shared.now(), opened.epoch, opened.known);
    let Err(ended) = Box::pin(carry(shared, identity, opened, agent, known.beat.get_or_insert_default())).await;
    counters.connected.fetch_sub(1, Ordering::Relaxed);
    known.lost_at = Some(Instant::now());
    agent.handle_disconnected();
    ended
}

async fn open(
    shared: &Shared,
    identity: &Identity,
    host: HostKey,
    nonce: Uuid,
    agent: &SimAgent,
    known: &mut Known,
) -> Result<Opened, Ended> {
    let _permit = shared.handshakes.acquire().await.expect("the semaphore is never closed");
    let begun = Instant::now();
    let config = match &known.tls {
        Some(config) => config.clone(),
        None => {
            let (authority, certificate) = (&identity.authority_pem, &identity.certificate_pem);
            let config = proctor_pki::session_config(authority, certificate, &identity.key)?;
            known.tls.insert(Arc::new(proctor_pki::resuming(config))).clone()
        }
    };
    let tls = dial(shared.connect_at.next(), config).await?;
    if tls.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
        Stats::count(&shared.figures.counters.resumed);
    }
    let counters = tls.get_ref().0.counters();
    let relay = proctor_pki::relay_reached(tls.get_ref().1.peer_certificates().unwrap_or_default())?;
    let mut frames: Frames = framed(tls, AgentCodec::new());
    let challenge = proctor_pki::random_bytes::<32>();
    let boot = agent.boot().clone();
    let said = HelloTerms {
        boot: &boot,
        nonce: nonce.as_bytes(),
        seen_generation: agent.seen_generation(),
        seen_epoch: Some(agent.epoch()),
    };
    let state = agent.state(shared.now());
    let hello = FromAgent::Hello {
        agent: identity.agent.clone(),
        boot: boot.clone(),
        facts: facts(host),
        seen_generation: said.seen_generation,
        nonce: said.nonce.to_vec(),
        time_ms: Some(clock::unix_millis() + agent.group().clock_offset_ms),
        seen_epoch: said.seen_epoch,
        answers_usage: false,
        answers_logs: true,
        challenge: Some(challenge.to_vec()),
        upgrades: false,
        state: Some(state),
    };
    let hello = match &relay {
        None => hello,
        Some(relay) => {
            let answer = frames.next().await.ok_or(NoSession::Closed)??;
            let FromServer::Challenge { nonce } = answer else { return Err(NoSession::answered(answer).into()) };
            FromAgent::Signed(proctor_pki::seal_hello(&identity.key, relay, &nonce, hello)?)
        }
    };
    frames.send(hello).await?;
    let answer = frames.next().await.ok_or(NoSession::Closed)??;
    let Some((terms, proof)) = SessionTerms::of_answer(&identity.agent, &challenge, said, &answer) else {
        return Err(NoSession::answered(answer).into());
    };
    let (epoch, beat, known_to_server) = (terms.epoch, terms.beat_interval(), terms.state_known);
    if relay.is_some() && !terms.signed_reports {
        return Err(Untrusted::UnsignedThroughRelay.into());
    }
    let check = match proof {
        Some(proof) => {
            let trust = known.trust.unwrap_or_default();
            let mut check = CommandCheck::of_welcome(&identity.authority_pem, &terms, proof, trust, now())?;
            check.share(shared.verified.clone());
            Some(check)
        }
        None if known.trust.is_some() => return Err(Untrusted::Unsigned.into()),
        None => None,
    };
    known.trust = check.as_ref().map(CommandCheck::trust);
    let mut signatures = Signatures { check, reports: terms.signed_reports.then(|| ReportSeal::new(&terms)) };
    // An identity that outlives this run does so without its epoch.
    let settled = FromAgent::Settled { epoch, recorded: !shared.identities.are_kept() };
    frames.send(signatures.signed(identity, settled)?).await?;
    shared.figures.took(Latency::Connect, begun.elapsed());
    let (sender, receiver) = ends(frames, counters);
    if known_to_server {
        Stats::count(&shared.figures.counters.state_known);
    }
    Ok(Opened { sender, receiver, epoch, beat, signatures, known: known_to_server.then_some(state) })
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).expect("the clock's time is a time")
}

impl Signatures {
    /// As it goes out.
    fn signed(&mut self, identity: &Identity, message: FromAgent) -> Result<FromAgent, Ended> {
        match &mut self.reports {
            Some(seal) => Ok(FromAgent::Signed(seal.seal(&identity.key, vec![encode_part(message)])?)),
            None => Ok(message),
        }
    }

    /// What is inside, by the rules of a real agent.
    fn opened(&mut self, identity: &Identity, message: FromServer) -> Result<Vec<FromServer>, Ended> {
        let Some(check) = &mut self.check else { return Ok(vec![message]) };
        match message {
            FromServer::Signed(signed) => Ok(check.open(&identity.authority_pem, &signed, now(), &mut None)?),
            plain @ (FromServer::Beat | FromServer::Refused { .. } | FromServer::Busy { .. } | FromServer::Unknown) => {
                Ok(vec![plain])
            }
            FromServer::Operate { .. }
            | FromServer::Acknowledge { .. }
            | FromServer::Cancel { .. }
            | FromServer::Assign { .. }
            | FromServer::AssignPools { .. }
            | FromServer::Registered(_)
            | FromServer::EventsSeen { .. }
            | FromServer::QueryUsage { .. }
            | FromServer::QueryLog { .. }
            | FromServer::Ping { .. }
            | FromServer::Pace { .. }
            | FromServer::Upgrade(_)
            | FromServer::BuildPart { .. }
            | FromServer::Renewed { .. }
            | FromServer::Enrolled { .. }
            | FromServer::RelayEnrolled { .. }
            | FromServer::Authorities(_)
            | FromServer::Challenge { .. }
            | FromServer::Welcome { .. }
            | FromServer::Unreadable { .. } => Err(Untrusted::Unsigned.into()),
        }
    }
}

async fn dial(server: SocketAddr, config: Arc<ClientConfig>) -> Result<Stream, std::io::Error> {
    let connected = tokio::time::timeout(DIAL_LIMIT, TcpStream::connect(server)).await;
    let tcp = connected.map_err(|_| std::io::Error::from(ErrorKind::TimedOut))??;
    prepare_link(&tcp)?;
    TlsConnector::from(config).connect(proctor_pki::server_name(), Counted::new(tcp)).await
}

/// An attempt that fails is counted; one that takes too long has failed.
async fn bounded<T>(shared: &Shared, attempt: impl Future<Output = Result<T, Ended>>) -> Result<T, Ended> {
    let result = tokio::time::timeout(CONNECT_LIMIT, attempt).await.unwrap_or(Err(NoSession::Silent.into()));
    if result.is_err() {
        Stats::count(&shared.figures.counters.connect_failures);
    }
    result
}

/// Messages both ways, heartbeats, and whatever the agent's clock brings.
async fn carry(
    shared: &Shared,
    identity: &Identity,
    opened: Opened,
    agent: &mut SimAgent,
    beat: &mut Duration,
) -> Result<std::convert::Infallible, Ended> {
    let Opened { mut sender, mut receiver, mut signatures, .. } = opened;
    let mut beats = tokio::time::interval(*beat);
    let mut heard = Instant::now();
    let after = |secs: Option<u64>| secs.map(|secs| Instant::now() + Duration::from_secs(secs));
    let (drop_at, kill_at) = (after(agent.group().disconnect_every_secs), after(agent.group().kill_every_secs));
    let pause = Duration::from_millis(agent.group().read_pause_ms);
    let mut read_after = Instant::now();
    // Kept from turn to turn, and mostly set to the same time: thousands of agents set none for a message.
    let mut timer = pin!(tokio::time::sleep_until(shared.at(agent.poll_timeout())));
    loop {
        let now = shared.now();
        agent.handle_timeout(now);
        send_all(&mut sender, &mut signatures, identity, agent, now).await?;
        let timeout = shared.at(agent.poll_timeout());
        if timer.deadline() != timeout {
            timer.as_mut().reset(timeout);
        }
        let may_read = pause.is_zero() || read_after <= Instant::now();
        let silence_max = *beat * SILENT_BEATS_MAX + pause;
        tokio::select! {
            // Silence is noticed with the beats.
            message = receiver.next_whenever(), if may_read => {
                heard = Instant::now();
                read_after = heard + pause;
                for message in signatures.opened(identity, message?)? {
                    if let FromServer::Busy { retry_after } = message {
                        return Err(NoSession::Busy(retry_after).into());
                    }
                    if let FromServer::Refused { reason, retry } = message {
                        return Err(NoSession::Refused { reason, retry }.into());
                    }
                    if let FromServer::Pace { beat_interval } = message {
                        let paced = signatures.signed(identity, FromAgent::Paced { beat_interval })?;
                        sender.send(paced).await?;
                        *beat = beat_interval;
                        beats = tokio::time::interval_at(tokio::time::Instant::now() + *beat, *beat);
                        continue;
                    }
                    agent.handle_message(shared.now(), message);
                }
            }
            () = tokio::time::sleep_until(read_after.into()), if !may_read => {}
            () = timer.as_mut() => {}
            _ = beats.tick() => {
                if heard.elapsed() > silence_max {
                    return Err(NoSession::Silent.into());
                }
                sender.send(FromAgent::Beat).await?;
            }
        }
        if drop_at.is_some_and(|at| at <= Instant::now()) {
            return Err(Ended::Dropped);
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            return Err(Ended::Killed);
        }
    }
}

/// Everything that the agent has to say now, in one flush, and as of a real agent with one signature unless it is much.
async fn send_all(
    sender: &mut Sender,
    signatures: &mut Signatures,
    identity: &Identity,
    agent: &mut SimAgent,
    now: Now,
) -> Result<(), Ended> {
    let Some(first) = agent.poll_message(now) else { return Ok(()) };
    let rest = std::iter::from_fn(|| agent.poll_message(now));
    let messages = std::iter::once(first).chain(rest);
    let Some(seal) = &mut signatures.reports else {
        for message in messages {
            sender.feed(message).await?;
        }
        return Ok(sender.flush().await?);
    };
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for part in messages.map(encode_part) {
        if bytes + part.len() > SIGNED_BYTES_MAX && !parts.is_empty() {
            bytes = 0;
            let signed = seal.seal(&identity.key, std::mem::take(&mut parts))?;
            sender.feed(FromAgent::Signed(signed)).await?;
        }
        bytes += part.len();
        parts.push(part);
    }
    Ok(sender.send(FromAgent::Signed(seal.seal(&identity.key, parts)?)).await?)
}

fn facts(host: HostKey) -> HostFacts {
    HostFacts {
        hostname: format!("swarm-{}", host.ip),
        os: "simulated".to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        cpus: 8,
        memory_bytes: 16 << 30,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        policy: None,
    }
}

//! The session with the server: connect, say hello, exchange messages, and reconnect when it breaks.
//!
//! Promised: once a control plane signs, nothing unsigned reaches the driver except what anybody may send (a
//! heartbeat, a refusal, "busy"). The first message that fails verification ends the session, and the driver reports
//! it in an event.
//! Start at `Link::run`; `authorities` follows a rotation of the control plane's authority.

mod authorities;
mod driver_state;
mod leaving;
mod pace;
mod queue;
mod returning;
mod waits;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use proctor_host::Host;
use proctor_model::RelayId;
use proctor_pki::{CommandCheck, HelloTerms, ReportSeal, SessionTerms, Untrusted, relay_reached, seal_hello};
use proctor_runtime::{chain, clock, prepare_link};
use proctor_wire::{
    AgentCodec, CONNECT_LIMIT, CONNECT_LIMIT_OF_SEVERAL, Counted, FromAgent, FromServer, Incoming, Lost, NoSession,
    SILENT_BEATS_MAX, Skipped, WireError, ends, framed,
};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::codec::Framed;
use uuid::Uuid;

use crate::connect_error;
use crate::driver::{Inbox, Input};
use crate::endpoints::Endpoints;
use crate::identity::Identity;
use crate::local::About;
use crate::policy::PolicyFile;
use crate::report_sender::{NotSent, ReportSender, Sealing};
use crate::trust::{self, Trust};
use crate::upgrade::{Told, UpgradeInbox};
use crate::{AgentError, Options};
use authorities::Following;
use driver_state::{DriverSilent, DriverState};
pub(crate) use leaving::Leaving;
use pace::SessionPace;
pub(crate) use queue::LinkOutbox;
use queue::{Queue, Unqueued, outbox, send_next};
use waits::{Reached, Waits};

/// For the greeting of a relay, which may have to wait for its turn.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// A certificate is renewed when less than this is left.
const RENEW_BEFORE: Duration = Duration::from_secs(10 * 24 * 3600);
/// A session of this length was a success.
const STEADY: Duration = Duration::from_secs(30);
const RENEW_PERIOD: Duration = Duration::from_secs(3600);
const CHALLENGE_BYTES: usize = 32;

/// Who this agent is, and whom it obeys.
pub(crate) struct Known {
    pub(crate) identity: Arc<Identity>,
    pub(crate) trust: Trust,
    /// Where orders to become another version go.
    pub(crate) upgrades: UpgradeInbox,
    pub(crate) leaving: Leaving,
}

/// What the link has of the driver.
pub(crate) struct DriverSide {
    pub(crate) inbox: Inbox,
    pub(crate) seen_generation: Arc<AtomicU64>,
    /// Changes with every turn.
    pub(crate) turns: Arc<AtomicU64>,
}

pub(crate) struct Link {
    /// All endpoints, as they were given.
    servers: String,
    identity: Arc<Identity>,
    trust: Trust,
    host: Host,
    policy: Arc<PolicyFile>,
    inbox: Inbox,
    driver_state: DriverState,
    about: Arc<About>,
    seen_generation: Arc<AtomicU64>,
    upgrades: UpgradeInbox,
    is_program: bool,
    /// Identifies this run of the agent, so that the server can distinguish it from a copy.
    nonce: Uuid,
    /// The epoch of the last session of this run.
    last_epoch: AtomicU64,
    leaving: Leaving,
    following: Following,
    /// By endpoint: a relay would use up the tickets of the server.
    tls: Mutex<HashMap<String, ForCertificate>>,
}

/// The configuration for a certificate, with the tickets that the server gave for it.
struct ForCertificate {
    certificate_pem: String,
    authorities_pem: Arc<str>,
    config: Arc<ClientConfig>,
}

#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error(transparent)]
    Link(#[from] NoSession),
    #[error("the identity cannot be used")]
    Pki(#[from] proctor_pki::PkiError),
    #[error("the server's message failed verification")]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    Driver(#[from] DriverSilent),
    #[error("the agent is shutting down")]
    Shutdown,
}

impl SessionEnd {
    /// The peer has said why there is no session, or could not be trusted.
    fn is_answer(&self) -> bool {
        matches!(self, Self::Untrusted(_) | Self::Link(NoSession::Busy(_) | NoSession::Refused { .. }))
    }
}

impl From<NotSent> for SessionEnd {
    fn from(not_sent: NotSent) -> Self {
        match not_sent {
            NotSent::Lost(lost) => lost.into(),
            NotSent::Sign(error) => error.into(),
        }
    }
}

impl From<Lost> for SessionEnd {
    fn from(lost: Lost) -> Self {
        Self::Link(lost.into())
    }
}

impl From<std::io::Error> for SessionEnd {
    fn from(error: std::io::Error) -> Self {
        Self::Link(error.into())
    }
}

impl From<WireError> for SessionEnd {
    fn from(error: WireError) -> Self {
        Self::Link(error.into())
    }
}

type Stream = TlsStream<Counted<TcpStream>>;
type Frames = Framed<Stream, AgentCodec>;
type Sender = ReportSender<Stream>;
type Receiver = Incoming<Stream, FromServer, FromAgent>;

/// A session that the server has opened.
struct Opened {
    sender: Sender,
    receiver: Receiver,
    /// Of a control plane that signs.
    check: Option<CommandCheck>,
    beat: Duration,
    is_relayed: bool,
    is_state_known: bool,
}

async fn handshake(tcp: TcpStream, config: Arc<ClientConfig>) -> Result<Stream, SessionEnd> {
    prepare_link(&tcp)?;
    Ok(TlsConnector::from(config).connect(proctor_pki::server_name(), Counted::new(tcp)).await?)
}

/// Both within `limit`. A server that cannot be reached is down: retrying costs it nothing. One that accepts and
/// stays silent has more connections than it can handle.
async fn within_limit<S, T, G>(
    limit: Duration,
    dial: impl Future<Output = std::io::Result<S>>,
    greet: impl FnOnce(S) -> G,
) -> Result<T, SessionEnd>
where
    G: Future<Output = Result<T, SessionEnd>>,
{
    let until = tokio::time::Instant::now() + limit;
    let dialled = tokio::time::timeout_at(until, dial).await;
    let stream = dialled.map_err(|_| std::io::Error::from(ErrorKind::TimedOut))??;
    tokio::time::timeout_at(until, greet(stream)).await.map_err(|_| NoSession::Silent)?
}

impl Link {
    pub(crate) fn new(
        options: &Options,
        Known { identity, trust, upgrades, leaving }: Known,
        host: Host,
        policy: Arc<PolicyFile>,
        DriverSide { inbox, seen_generation, turns }: DriverSide,
        about: Arc<About>,
    ) -> Self {
        Self {
            servers: options.server.clone(),
            identity,
            trust,
            host,
            policy,
            driver_state: DriverState::new(inbox.clone(), turns),
            inbox,
            about,
            seen_generation,
            upgrades,
            is_program: options.is_program,
            nonce: Uuid::new_v4(),
            last_epoch: AtomicU64::new(0),
            leaving,
            following: Following::default(),
            tls: Mutex::default(),
        }
    }

    /// One session after the other, until the agent ends.
    pub(crate) async fn run(self) -> Result<(), AgentError> {
        let mut waits = Waits::new();
        let mut endpoints = Endpoints::new(&self.servers);
        let mut connected_until = self.host.now();
        loop {
            let server = endpoints.next();
            let (ended, wait) = match self.connect(&server, endpoints.are_several()).await {
                Ok(opened) => {
                    let since = self.host.now();
                    waits.opened(opened.beat, opened.is_relayed);
                    let (is_relayed, pace) = (opened.is_relayed, SessionPace::new(opened.beat));
                    let ended = Box::pin(self.carry(opened, &pace)).await;
                    waits.opened(pace.beat(), is_relayed);
                    connected_until = self.host.now();
                    self.about.disconnected();
                    self.upgrades.connect(None);
                    let _ = self.inbox.send(Input::Disconnected).await;
                    endpoints.lost(&server);
                    let was_steady = connected_until.saturating_sub(since) > STEADY;
                    if was_steady {
                        waits.short.reset();
                    }
                    // A session that breaks at once is no reason to reconnect at once.
                    let is_quick = was_steady && endpoints.are_several() && !ended.is_answer();
                    let wait =
                        if is_quick { endpoints.fail_over_wait() } else { waits.after(Reached::Session, &ended) };
                    (ended, wait)
                }
                Err(ended) => {
                    self.about.metrics.session_failed();
                    let outage = self.host.now().saturating_sub(connected_until);
                    let wait = waits.after_failure(&ended, &endpoints, outage);
                    (ended, wait)
                }
            };
            if matches!(ended, SessionEnd::Shutdown) {
                return Ok(());
            }
            self.tell(&server, &ended, wait).await;
        }
    }

    /// Logs why there is no session, and waits.
    async fn tell(&self, server: &str, ended: &SessionEnd, wait: Duration) {
        if let SessionEnd::Untrusted(untrusted) = ended {
            let reason = chain(untrusted);
            let _ = self.inbox.send(Input::CommandRefused { server: server.to_owned(), reason }).await;
        }
        let why = match ended {
            SessionEnd::Link(no_session) => connect_error::explain(no_session, server),
            SessionEnd::Pki(_) | SessionEnd::Untrusted(_) | SessionEnd::Driver(_) | SessionEnd::Shutdown => {
                chain(ended)
            }
        };
        tracing::warn!(server, why, ?wait, "cannot open session");
        tokio::time::sleep(wait).await;
    }

    async fn connect(&self, server: &str, is_one_of_several: bool) -> Result<Opened, SessionEnd> {
        if let Some(expired_at) = self.expired_at() {
            Box::pin(self.come_back(server, expired_at)).await?;
        }
        let (config, begun) = (self.tls_config(server)?, tokio::time::Instant::now());
        let limit = if is_one_of_several { CONNECT_LIMIT_OF_SEVERAL } else { CONNECT_LIMIT };
        let dial = Box::pin(TcpStream::connect(server));
        let tls = within_limit(limit, dial, |tcp| Box::pin(handshake(tcp, config))).await?;
        let relay = relay_reached(tls.get_ref().1.peer_certificates().unwrap_or_default())?;
        let until = if relay.is_some() { tokio::time::Instant::now() + GREETING_LIMIT } else { begun + CONNECT_LIMIT };
        let greeting = Box::pin(self.greet(server, tls, relay));
        tokio::time::timeout_at(until, greeting).await.map_err(|_| NoSession::Silent)?
    }

    /// When the certificate expired; None if it has not.
    fn expired_at(&self) -> Option<jiff::Timestamp> {
        let expires_at = proctor_pki::expires_at(&self.identity.current_certificate()).ok()?;
        self.about.metrics.certificate(expires_at.as_second());
        (expires_at.as_millisecond() <= clock::unix_millis()).then_some(expires_at)
    }

    async fn greet(&self, server: &str, tls: Stream, relay: Option<RelayId>) -> Result<Opened, SessionEnd> {
        let state = self.driver_state.ask().await?;
        let identity = &self.identity;
        let counters = tls.get_ref().0.counters();
        let mut frames: Frames = framed(tls, AgentCodec::new());
        let mut facts = self.host.facts();
        facts.agent_version = crate::version().to_owned();
        let policy = self.policy.in_force().map(|path| path.display().to_string());
        facts.policy = Some(policy.unwrap_or_default());
        let challenge = proctor_pki::random_bytes::<CHALLENGE_BYTES>();
        let said = HelloTerms {
            boot: self.host.boot_id(),
            nonce: self.nonce.as_bytes(),
            seen_generation: self.seen_generation.load(Ordering::Acquire),
            seen_epoch: Some(identity.seen_epoch().max(self.last_epoch.load(Ordering::Acquire))),
        };
        let hello = FromAgent::Hello {
            agent: identity.agent.clone(),
            boot: said.boot.clone(),
            facts,
            seen_generation: said.seen_generation,
            nonce: said.nonce.to_vec(),
            time_ms: Some(clock::unix_millis()),
            answers_usage: true,
            answers_logs: true,
            seen_epoch: said.seen_epoch,
            challenge: Some(challenge.to_vec()),
            upgrades: self.is_program,
            state,
        };
        let hello = match &relay {
            None => hello,
            // Whoever reads what the relay carries must see that it is this agent, and now.
            Some(relay) => {
                let answer = frames.next().await.ok_or(NoSession::Closed)??;
                let FromServer::Challenge { nonce } = answer else { return Err(NoSession::answered(answer).into()) };
                FromAgent::Signed(seal_hello(&identity.key, relay, &nonce, hello)?)
            }
        };
        frames.send(hello).await?;
        let answer = frames.next().await.ok_or(NoSession::Closed)??;
        let Some((terms, proof)) = SessionTerms::of_answer(&identity.agent, &challenge, said, &answer) else {
            return Err(NoSession::answered(answer).into());
        };
        let (epoch, beat) = (terms.epoch, terms.beat_interval());
        if relay.is_some() && !terms.signed_reports {
            return Err(Untrusted::UnsignedThroughRelay.into());
        }
        let check = self.trust.judge(&terms, proof)?;
        let mut sealing = terms.signed_reports.then(|| Sealing::new(ReportSeal::new(&terms), self.identity.clone()));
        let signed = check.is_some();
        tracing::info!(server, relay = relay.as_ref().map(|relay| relay.as_str()), epoch, signed, "connected");
        self.about.connected(clock::unix_millis() - terms.server_time_ms);
        let settled = self.settle(epoch);
        let settled = match &mut sealing {
            Some(sealing) => sealing.seal(settled)?,
            None => settled,
        };
        frames.send(settled).await?;
        let (mut sender, receiver) = ends(frames, counters);
        let is_relayed = relay.is_some();
        if is_relayed {
            sender.wait_while_heard(&receiver);
        }
        let is_state_known = terms.state_known;
        Ok(Opened { sender: ReportSender::new(sender, sealing), receiver, check, beat, is_relayed, is_state_known })
    }

    /// The same for all sessions with an endpoint, so that they are resumed; another one after a renewal, and with other
    /// authorities.
    fn tls_config(&self, server: &str) -> Result<Arc<ClientConfig>, SessionEnd> {
        let identity = &self.identity;
        let (certificate_pem, authorities_pem) = (identity.current_certificate(), identity.authorities_pem());
        let mut tls = self.tls.lock();
        let is_same = |known: &&ForCertificate| {
            known.certificate_pem == certificate_pem && known.authorities_pem == authorities_pem
        };
        if let Some(known) = tls.get(server).filter(is_same) {
            return Ok(known.config.clone());
        }
        let config = proctor_pki::session_config(&authorities_pem, &certificate_pem, &identity.key)?;
        let config = Arc::new(proctor_pki::resuming(config));
        tls.insert(server.to_owned(), ForCertificate { certificate_pem, authorities_pem, config: config.clone() });
        Ok(config)
    }

    /// Records the session before there is work on it. If the disk is full the agent still serves.
    fn settle(&self, epoch: u64) -> FromAgent {
        self.last_epoch.store(epoch, Ordering::Release);
        let recorded = self.identity.record_epoch(epoch);
        if let Err(error) = &recorded {
            tracing::warn!(%error, epoch, "cannot record session epoch");
        }
        FromAgent::Settled { epoch, recorded: recorded.is_ok() }
    }

    async fn carry(&self, opened: Opened, pace: &SessionPace) -> SessionEnd {
        let Opened { mut sender, receiver, check, beat: _, is_relayed: _, is_state_known } = opened;
        let (outbox, unqueued) = outbox();
        self.upgrades.connect(Some(outbox.control.clone()));
        if self.inbox.send(Input::Connected { link: outbox.clone(), is_state_known }).await.is_err() {
            return SessionEnd::Shutdown;
        }
        let result = tokio::select! {
            // First: the driver ends at the same time, and its end must not take the place of the goodbye.
            biased;
            () = self.leaving.asked() => None,
            result = self.listen(receiver, check, pace, &outbox) => Some(result),
            result = self.talk(&mut sender, unqueued, pace) => Some(result),
        };
        match result {
            Some(Ok(never)) => match never {},
            Some(Err(ended)) => ended,
            None => {
                self.leaving.say_goodbye(&mut sender).await;
                SessionEnd::Shutdown
            }
        }
    }

    async fn listen(
        &self,
        mut receiver: Receiver,
        mut check: Option<CommandCheck>,
        pace: &SessionPace,
        outbox: &LinkOutbox,
    ) -> Result<Infallible, SessionEnd> {
        let mut awake_at = self.host.now();
        // After a long sleep what waits in the socket is old: the server has given it up.
        let mut was_awake = |silence_max: Duration| {
            let now = self.host.now();
            now.saturating_sub(std::mem::replace(&mut awake_at, now)) <= silence_max
        };
        loop {
            let beat = pace.beat();
            let silence_max = beat * SILENT_BEATS_MAX;
            let message = receiver.next(silence_max, beat * 2, |_| was_awake(silence_max)).await?;
            if !was_awake(silence_max) {
                return Err(NoSession::Silent.into());
            }
            self.about.metrics.heard();
            tell_skipped(receiver.take_skipped());
            let Some(check) = &mut check else {
                self.hear(message, false, pace, outbox).await?;
                continue;
            };
            match message {
                FromServer::Signed(signed) => {
                    let mut skipped = None;
                    let messages = check.open(&self.identity.authorities_pem(), &signed, trust::now(), &mut skipped)?;
                    self.trust.learn(check.trust());
                    tell_skipped(skipped);
                    for message in messages {
                        self.hear(message, true, pace, outbox).await?;
                    }
                }
                // Whoever carries the session could send these in any case, or stay silent.
                message @ (FromServer::Beat
                | FromServer::Refused { .. }
                | FromServer::Busy { .. }
                | FromServer::Unknown) => self.hear(message, false, pace, outbox).await?,
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
                | FromServer::Authorities(_)
                | FromServer::Enrolled { .. }
                | FromServer::RelayEnrolled { .. }
                | FromServer::Challenge { .. }
                | FromServer::Welcome { .. }
                | FromServer::Unreadable { .. } => return Err(Untrusted::Unsigned.into()),
            }
        }
    }

    async fn hear(
        &self,
        message: FromServer,
        is_signed: bool,
        pace: &SessionPace,
        outbox: &LinkOutbox,
    ) -> Result<(), SessionEnd> {
        match message {
            FromServer::Beat => Ok(()),
            FromServer::Pace { beat_interval } => {
                // It takes effect once the server has the acknowledgement; without room for that everything stays as
                // it is.
                let beat_interval = SessionPace::fitted(beat_interval);
                if outbox.try_send(FromAgent::Paced { beat_interval }).is_ok() {
                    pace.set(beat_interval);
                }
                Ok(())
            }
            FromServer::Ping { number } => {
                // Here and not in the driver: it is the link that is measured.
                let _ = outbox.try_send(FromAgent::Pong { number });
                Ok(())
            }
            FromServer::Upgrade(order) => {
                self.upgrades.tell(Told::Order { order, is_signed });
                Ok(())
            }
            FromServer::BuildPart { upgrade, offset, bytes } => {
                self.upgrades.tell(Told::Part { upgrade, offset, bytes });
                Ok(())
            }
            FromServer::Renewed { certificate_pem } => {
                self.renewed(&certificate_pem);
                self.tell_trusted(outbox);
                Ok(())
            }
            // Nobody who merely carries the session may choose whom this agent trusts.
            FromServer::Authorities(announced) if is_signed => {
                self.hear_authorities(announced, outbox);
                Ok(())
            }
            FromServer::Authorities(_) => Ok(()),
            FromServer::Refused { reason, retry } => Err(NoSession::Refused { reason, retry }.into()),
            FromServer::Busy { retry_after } => Err(NoSession::Busy(retry_after).into()),
            message @ (FromServer::Operate { .. }
            | FromServer::Acknowledge { .. }
            | FromServer::Cancel { .. }
            | FromServer::Assign { .. }
            | FromServer::AssignPools { .. }
            | FromServer::Registered(_)
            | FromServer::EventsSeen { .. }
            | FromServer::QueryUsage { .. }
            | FromServer::QueryLog { .. }
            | FromServer::Enrolled { .. }
            | FromServer::RelayEnrolled { .. }
            | FromServer::Challenge { .. }
            | FromServer::Welcome { .. }
            | FromServer::Signed(_)
            | FromServer::Unreadable { .. }
            | FromServer::Unknown) => self.inbox.send(Input::Server(message)).await.map_err(|_| SessionEnd::Shutdown),
        }
    }

    async fn talk(
        &self,
        sender: &mut Sender,
        mut unqueued: Unqueued,
        pace: &SessionPace,
    ) -> Result<Infallible, SessionEnd> {
        let beats_after = |wait: Duration| {
            let mut beats = tokio::time::interval_at(tokio::time::Instant::now() + wait, pace.beat());
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            beats
        };
        let mut beats = beats_after(Duration::ZERO);
        let mut renewals = tokio::time::interval(RENEW_PERIOD);
        let mut queue = Queue::default();
        loop {
            // The driver sends it: a link that survives without its driver must not look like an agent.
            let tell_beat = || drop(self.inbox.try_send(Input::Beat));
            send_next(sender, &mut queue, &mut unqueued).await?;
            tokio::select! {
                biased;
                _ = beats.tick() => tell_beat(),
                () = pace.changed() => beats = beats_after(pace.beat()),
                _ = renewals.tick() => {
                    queue.extend(self.follow_again());
                    queue.extend(self.renewal());
                }
                Some(message) = unqueued.control.recv(), if queue.has_control_room() => queue.push(message),
                Some(message) = unqueued.reports.recv(), if queue.has_room() => queue.push(message),
                () = std::future::ready(()), if !queue.is_empty() => {}
            }
        }
    }

    /// A request for a new certificate, when the present one nears its end or another authority issues now.
    fn renewal(&self) -> Option<FromAgent> {
        let expires = proctor_pki::expires_at(&self.identity.current_certificate()).ok()?;
        let left_ms = expires.as_millisecond() - clock::unix_millis();
        let is_due =
            left_ms < i64::try_from(RENEW_BEFORE.as_millis()).expect("ten days fit") || self.is_of_other_issuer();
        let csr_der = is_due.then(|| self.identity.key.csr_der())?.ok()?;
        Some(FromAgent::Renew { csr_der })
    }

    fn renewed(&self, certificate_pem: &str) {
        match self.identity.renew(certificate_pem) {
            Ok(()) => {
                if let Ok(expires_at) = proctor_pki::expires_at(certificate_pem) {
                    self.about.metrics.certificate(expires_at.as_second());
                }
                tracing::info!("certificate renewed");
            }
            Err(error) => tracing::error!(%error, "cannot save renewed certificate"),
        }
    }
}

fn tell_skipped(skipped: Option<Skipped>) {
    if let Some(Skipped { what, count, first }) = skipped {
        tracing::warn!(what, count, first, "skipped unreadable items of a server message");
    }
}

#[cfg(test)]
mod tests {
    use super::waits::is_crowded;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_reached_is_not_taken_for_a_crowded_one() {
        let (mut waits, begun) = (Waits::new(), tokio::time::Instant::now());
        let unreachable =
            within_limit(CONNECT_LIMIT, std::future::pending(), |(): ()| std::future::pending::<Result<(), _>>());
        let unreachable = unreachable.await.unwrap_err();
        let silent =
            within_limit(CONNECT_LIMIT, std::future::ready(Ok(())), |()| std::future::pending::<Result<(), _>>());
        let silent = silent.await.unwrap_err();

        let waited: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &unreachable)).collect();

        assert!(waited.iter().all(|wait| *wait <= Duration::from_secs(5)), "{waited:?}");
        assert!(
            matches!(&unreachable, SessionEnd::Link(NoSession::Connect(error)) if error.kind() == ErrorKind::TimedOut)
        );
        assert!(matches!(&silent, SessionEnd::Link(no_session @ NoSession::Silent) if is_crowded(no_session)));
        assert!(begun.elapsed() < 2 * CONNECT_LIMIT + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

//! The session with the server: connect, greet, carry, and come back when it breaks.
//!
//! Promised: of a control plane that signs, nothing unsigned reaches the driver but what anybody may say (a beat, a
//! refusal, "busy"). The first message that does not verify ends the session, and the driver tells of it in an event.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use proctor_host::Host;
use proctor_pki::{CommandCheck, HelloTerms, ReportSeal, SessionTerms, Untrusted};
use proctor_runtime::{Backoff, chain, clock, prepare_link};
use proctor_wire::{
    ABSENT_WAIT_MAX, AgentCodec, CONNECT_LIMIT, Counted, FromAgent, FromServer, Incoming, Lost, NoSession,
    SILENT_BEATS_MAX, STAY_AWAY_MAX, Skipped, WireError, ends, framed, stay_away_max,
};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::codec::Framed;
use uuid::Uuid;

use crate::connect_error;
use crate::driver::{Inbox, Input};
use crate::identity::Identity;
use crate::local::About;
use crate::policy::PolicyFile;
use crate::report_sender::{NotSent, ReportSender, Sealing};
use crate::trust::{self, Trust};
use crate::upgrade::{Told, UpgradeInbox};
use crate::{AgentError, Options};

/// Messages that may wait for the socket.
const OUTBOX_MAX: usize = 1024;
/// A certificate is renewed when less than this is left.
const RENEW_BEFORE: Duration = Duration::from_secs(10 * 24 * 3600);
/// A session of this length was a success.
const STEADY: Duration = Duration::from_secs(30);
const RENEW_PERIOD: Duration = Duration::from_secs(3600);
/// The first wait after a server has closed a connection before a word was said: it has more of them than it can take.
const CROWDED_WAIT: Duration = Duration::from_millis(500);
/// However short or long a server says that it is busy: nobody has signed that.
const BUSY_WAIT_MIN: Duration = Duration::from_millis(100);
const BUSY_WAIT_MAX: Duration = Duration::from_secs(120);
/// After a refusal that only people can cure, about so long: a fleet must not come back all at once.
const REFUSED_WAIT: Duration = Duration::from_secs(30);
const CHALLENGE_BYTES: usize = 32;

/// Who this agent is, and whom it obeys.
pub(crate) struct Known {
    pub(crate) identity: Arc<Identity>,
    pub(crate) trust: Trust,
    /// Where orders to become another version go.
    pub(crate) upgrades: UpgradeInbox,
}

pub(crate) struct Link {
    server: String,
    identity: Arc<Identity>,
    trust: Trust,
    host: Host,
    policy: Arc<PolicyFile>,
    inbox: Inbox,
    about: Arc<About>,
    seen_generation: Arc<AtomicU64>,
    upgrades: UpgradeInbox,
    is_program: bool,
    /// Of this run of the agent, so that the server tells it from a copy.
    nonce: Uuid,
    /// The epoch of the last session of this run.
    last_epoch: AtomicU64,
    tls: Mutex<Option<ForCertificate>>,
}

/// The configuration for a certificate, with the tickets that the server gave for it.
struct ForCertificate {
    certificate_pem: String,
    config: Arc<ClientConfig>,
}

#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error(transparent)]
    Link(#[from] NoSession),
    #[error("{0}")]
    Expired(String),
    #[error("the identity cannot be used")]
    Pki(#[from] proctor_pki::PkiError),
    #[error("what came is not to be believed")]
    Untrusted(#[from] Untrusted),
    #[error("the agent ends")]
    Shutdown,
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
}

/// How long to wait for the next attempt.
struct Waits {
    short: Backoff,
    crowded: Backoff,
    refused: Backoff,
}

/// How far an attempt had come when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Nothing,
    Session,
}

impl Waits {
    fn new() -> Self {
        Self {
            short: Backoff::new(Duration::from_millis(100), ABSENT_WAIT_MAX),
            crowded: Backoff::new(CROWDED_WAIT, STAY_AWAY_MAX),
            refused: Backoff::new(REFUSED_WAIT * 2 / 3, REFUSED_WAIT * 4 / 3),
        }
    }

    /// With a server that wants a heartbeat that often: the more agents it has, the longer.
    fn opened(&mut self, beat: Duration) {
        self.crowded = Backoff::new(CROWDED_WAIT, stay_away_max(beat));
    }

    fn after(&mut self, reached: Reached, ended: &SessionEnd) -> Duration {
        match ended {
            SessionEnd::Link(NoSession::Busy(wait)) => (*wait).clamp(BUSY_WAIT_MIN, BUSY_WAIT_MAX),
            // Each attempt opens a session on the server: of a whole fleet, that would be a flood.
            SessionEnd::Untrusted(_) | SessionEnd::Link(NoSession::Refused { retry: false, .. }) => {
                self.refused.next_wait()
            }
            SessionEnd::Link(no_session) if reached == Reached::Nothing && is_crowded(no_session) => {
                self.crowded.next_wait()
            }
            SessionEnd::Link(_) | SessionEnd::Expired(_) | SessionEnd::Pki(_) | SessionEnd::Shutdown => {
                self.short.next_wait()
            }
        }
    }
}

/// Both within [`CONNECT_LIMIT`]. A server that cannot be reached is not there: looking again costs it nothing. One that
/// is silent once it is reached has more connections than it can take.
async fn within_limit<S, T, G>(
    dial: impl Future<Output = std::io::Result<S>>,
    greet: impl FnOnce(S) -> G,
) -> Result<T, SessionEnd>
where
    G: Future<Output = Result<T, SessionEnd>>,
{
    let until = tokio::time::Instant::now() + CONNECT_LIMIT;
    let dialled = tokio::time::timeout_at(until, dial).await;
    let stream = dialled.map_err(|_| std::io::Error::from(ErrorKind::TimedOut))??;
    tokio::time::timeout_at(until, greet(stream)).await.map_err(|_| NoSession::Silent)?
}

/// Somebody listens, and did not come to an answer.
fn is_crowded(no_session: &NoSession) -> bool {
    match no_session {
        NoSession::Silent | NoSession::Closed => true,
        NoSession::Connect(error) => {
            matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        }
        NoSession::Stuck | NoSession::Busy(_) | NoSession::Refused { .. } | NoSession::Broken(_) => false,
    }
}

impl Link {
    pub(crate) fn new(
        options: &Options,
        Known { identity, trust, upgrades }: Known,
        host: Host,
        policy: Arc<PolicyFile>,
        inbox: Inbox,
        about: Arc<About>,
        seen_generation: Arc<AtomicU64>,
    ) -> Self {
        Self {
            server: options.server.clone(),
            identity,
            trust,
            host,
            policy,
            inbox,
            about,
            seen_generation,
            upgrades,
            is_program: options.is_program,
            nonce: Uuid::new_v4(),
            last_epoch: AtomicU64::new(0),
            tls: Mutex::default(),
        }
    }

    /// One session after the other, until the agent ends.
    pub(crate) async fn run(self) -> Result<(), AgentError> {
        let mut waits = Waits::new();
        loop {
            let (reached, ended) = match self.connect().await {
                Ok(opened) => {
                    waits.opened(opened.beat);
                    let since = self.host.now();
                    let ended = Box::pin(self.carry(opened)).await;
                    // A session that breaks again at once is no reason to come back at once.
                    if self.host.now().saturating_sub(since) > STEADY {
                        waits.short.reset();
                    }
                    self.about.disconnected();
                    self.upgrades.connect(None);
                    let _ = self.inbox.send(Input::Disconnected).await;
                    (Reached::Session, ended)
                }
                Err(ended) => {
                    self.about.metrics.session_failed();
                    (Reached::Nothing, ended)
                }
            };
            if let SessionEnd::Untrusted(untrusted) = &ended {
                let reason = chain(untrusted);
                let _ = self.inbox.send(Input::CommandRefused { server: self.server.clone(), reason }).await;
            }
            if matches!(ended, SessionEnd::Shutdown) {
                return Ok(());
            }
            let wait = waits.after(reached, &ended);
            let why = match &ended {
                SessionEnd::Link(no_session) => connect_error::explain(no_session, &self.server),
                SessionEnd::Expired(_) | SessionEnd::Pki(_) | SessionEnd::Untrusted(_) | SessionEnd::Shutdown => {
                    chain(&ended)
                }
            };
            tracing::warn!(server = %self.server, why, ?wait, "no session with the server");
            tokio::time::sleep(wait).await;
        }
    }

    async fn connect(&self) -> Result<Opened, SessionEnd> {
        let config = self.usable_config()?;
        let dial = Box::pin(TcpStream::connect(&self.server));
        within_limit(dial, |tcp| Box::pin(self.greet(tcp, config))).await
    }

    /// Of a certificate that has not expired.
    fn usable_config(&self) -> Result<Arc<ClientConfig>, SessionEnd> {
        let identity = &self.identity;
        if let Ok(expires_at) = proctor_pki::expires_at(&identity.current_certificate()) {
            self.about.metrics.certificate(expires_at.as_second());
            if expires_at.as_millisecond() <= clock::unix_millis() {
                return Err(SessionEnd::Expired(connect_error::expired(expires_at)));
            }
        }
        self.tls_config()
    }

    async fn greet(&self, tcp: TcpStream, config: Arc<ClientConfig>) -> Result<Opened, SessionEnd> {
        let identity = &self.identity;
        prepare_link(&tcp)?;
        let tcp = Counted::new(tcp);
        let counters = tcp.counters();
        let tls = TlsConnector::from(config).connect(proctor_pki::server_name(), tcp).await?;
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
            seen_epoch: said.seen_epoch,
            challenge: Some(challenge.to_vec()),
            upgrades: self.is_program,
        };
        frames.send(hello).await?;
        let answer = frames.next().await.ok_or(NoSession::Closed)??;
        let FromServer::Welcome { epoch, beat_interval: beat, server_time_ms, proof } = answer else {
            return Err(NoSession::answered(answer).into());
        };
        let terms = SessionTerms {
            agent: &identity.agent,
            challenge: &challenge,
            epoch,
            control_epoch: proof.as_ref().map_or(0, |proof| proof.control_epoch),
            beat_interval_ms: u64::try_from(beat.as_millis()).unwrap_or(u64::MAX),
            server_time_ms,
            signed_reports: proof.as_ref().is_some_and(|proof| proof.signed_reports),
            hello: said,
        };
        let check = self.trust.judge(&terms, proof.as_ref())?;
        let mut sealing = terms.signed_reports.then(|| Sealing::new(ReportSeal::new(&terms), self.identity.clone()));
        tracing::info!(server = %self.server, epoch, signed = check.is_some(), "connected");
        self.about.connected(clock::unix_millis() - server_time_ms);
        let settled = self.settle(epoch);
        let settled = match &mut sealing {
            Some(sealing) => sealing.seal(settled)?,
            None => settled,
        };
        frames.send(settled).await?;
        let (sender, receiver) = ends(frames, counters);
        Ok(Opened { sender: ReportSender::new(sender, sealing), receiver, check, beat })
    }

    /// The same for all sessions, so that they are resumed; another one after a renewal.
    fn tls_config(&self) -> Result<Arc<ClientConfig>, SessionEnd> {
        let identity = &self.identity;
        let certificate_pem = identity.current_certificate();
        let mut tls = self.tls.lock();
        if let Some(known) = tls.as_ref().filter(|known| known.certificate_pem == certificate_pem) {
            return Ok(known.config.clone());
        }
        let config = proctor_pki::session_config(&identity.authority_pem, &certificate_pem, &identity.key)?;
        let config = Arc::new(proctor_pki::resuming(config));
        *tls = Some(ForCertificate { certificate_pem, config: config.clone() });
        Ok(config)
    }

    /// Records the session before there is work on it. Where the disk is full the agent still serves.
    fn settle(&self, epoch: u64) -> FromAgent {
        self.last_epoch.store(epoch, Ordering::Release);
        let recorded = self.identity.record_epoch(epoch);
        if let Err(error) = &recorded {
            tracing::warn!(%error, epoch, "session epoch not recorded");
        }
        FromAgent::Settled { epoch, recorded: recorded.is_ok() }
    }

    async fn carry(&self, Opened { sender, receiver, check, beat }: Opened) -> SessionEnd {
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        self.upgrades.connect(Some(outbox.clone()));
        if self.inbox.send(Input::Connected(outbox)).await.is_err() {
            return SessionEnd::Shutdown;
        }
        let result = tokio::select! {
            result = self.listen(receiver, check, beat) => result,
            result = self.talk(sender, messages, beat) => result,
        };
        match result {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn listen(
        &self,
        mut receiver: Receiver,
        mut check: Option<CommandCheck>,
        beat: Duration,
    ) -> Result<Infallible, SessionEnd> {
        let silence_max = beat * SILENT_BEATS_MAX;
        let mut awake_at = self.host.now();
        // After a long sleep what waits in the socket is old: the server has given it up.
        let mut was_awake = || {
            let now = self.host.now();
            now.saturating_sub(std::mem::replace(&mut awake_at, now)) <= silence_max
        };
        loop {
            let message = receiver.next(silence_max, beat * 2, |_| was_awake()).await?;
            if !was_awake() {
                return Err(NoSession::Silent.into());
            }
            self.about.metrics.heard();
            tell_skipped(receiver.take_skipped());
            let Some(check) = &mut check else {
                self.hear(message, false).await?;
                continue;
            };
            match message {
                FromServer::Signed(signed) => {
                    let mut skipped = None;
                    let messages = check.open(&self.identity.authority_pem, &signed, trust::now(), &mut skipped)?;
                    self.trust.learn(check.trust());
                    tell_skipped(skipped);
                    for message in messages {
                        self.hear(message, true).await?;
                    }
                }
                // Whoever carries the session could say these in any case, or be silent.
                message @ (FromServer::Beat
                | FromServer::Refused { .. }
                | FromServer::Busy { .. }
                | FromServer::Unknown) => self.hear(message, false).await?,
                FromServer::Operate { .. }
                | FromServer::Acknowledge { .. }
                | FromServer::Cancel { .. }
                | FromServer::Assign { .. }
                | FromServer::AssignPools { .. }
                | FromServer::EventsSeen { .. }
                | FromServer::QueryUsage { .. }
                | FromServer::Upgrade(_)
                | FromServer::BuildPart { .. }
                | FromServer::Renewed { .. }
                | FromServer::Enrolled { .. }
                | FromServer::Welcome { .. }
                | FromServer::Unreadable { .. } => return Err(Untrusted::Unsigned.into()),
            }
        }
    }

    async fn hear(&self, message: FromServer, is_signed: bool) -> Result<(), SessionEnd> {
        match message {
            FromServer::Beat => Ok(()),
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
                Ok(())
            }
            FromServer::Refused { reason, retry } => Err(NoSession::Refused { reason, retry }.into()),
            FromServer::Busy { retry_after } => Err(NoSession::Busy(retry_after).into()),
            message @ (FromServer::Operate { .. }
            | FromServer::Acknowledge { .. }
            | FromServer::Cancel { .. }
            | FromServer::Assign { .. }
            | FromServer::AssignPools { .. }
            | FromServer::EventsSeen { .. }
            | FromServer::QueryUsage { .. }
            | FromServer::Enrolled { .. }
            | FromServer::Welcome { .. }
            | FromServer::Signed(_)
            | FromServer::Unreadable { .. }
            | FromServer::Unknown) => self.inbox.send(Input::Server(message)).await.map_err(|_| SessionEnd::Shutdown),
        }
    }

    async fn talk(
        &self,
        mut sender: Sender,
        mut messages: mpsc::Receiver<FromAgent>,
        beat: Duration,
    ) -> Result<Infallible, SessionEnd> {
        let mut beats = tokio::time::interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewals = tokio::time::interval(RENEW_PERIOD);
        loop {
            let message = tokio::select! {
                Some(message) = messages.recv() => Some(message),
                // The driver says it: a link that lives on without it must not look like an agent.
                _ = beats.tick() => {
                    let _ = self.inbox.try_send(Input::Beat);
                    None
                }
                _ = renewals.tick() => self.renewal(),
            };
            let Some(message) = message else { continue };
            sender.feed(message).await?;
            // What else waits goes into the same flush.
            while let Ok(message) = messages.try_recv() {
                sender.feed(message).await?;
            }
            sender.flush().await?;
        }
    }

    /// A request for a new certificate, when the present one nears its end.
    fn renewal(&self) -> Option<FromAgent> {
        let expires = proctor_pki::expires_at(&self.identity.current_certificate()).ok()?;
        let left_ms = expires.as_millisecond() - clock::unix_millis();
        let is_due = left_ms < i64::try_from(RENEW_BEFORE.as_millis()).expect("ten days fit");
        let csr_der = is_due.then(|| self.identity.key.csr_der())?.ok()?;
        Some(FromAgent::Renew { csr_der })
    }

    fn renewed(&self, certificate_pem: &str) {
        match self.identity.renew(certificate_pem) {
            Ok(()) => {
                if let Ok(expires_at) = proctor_pki::expires_at(certificate_pem) {
                    self.about.metrics.certificate(expires_at.as_second());
                }
                tracing::info!("the certificate was renewed");
            }
            Err(error) => tracing::error!(%error, "the renewed certificate cannot be saved"),
        }
    }
}

fn tell_skipped(skipped: Option<Skipped>) {
    if let Some(Skipped { what, count, first }) = skipped {
        tracing::warn!(what, count, first, "skipped items of a message of the server");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_does_not_believe_its_server_comes_back_slowly_and_not_with_the_others() {
        let mut waits = Waits::new();
        let refused = NoSession::Refused { reason: String::new(), retry: false };
        let ends = [SessionEnd::Untrusted(Untrusted::Unsigned), SessionEnd::Link(refused)];

        let wait = |ended| waits.after(Reached::Session, ended);
        let taken: Vec<_> = ends.iter().cycle().take(20).map(wait).collect();

        assert!(taken.iter().all(|wait| (REFUSED_WAIT * 2 / 3..=REFUSED_WAIT * 4 / 3).contains(wait)), "{taken:?}");
        assert!(taken.iter().any(|wait| wait != &taken[0]));
        assert!(waits.after(Reached::Session, &SessionEnd::Link(NoSession::Closed)) <= Duration::from_secs(5));
    }

    #[test]
    fn an_agent_whose_server_closes_before_a_word_stays_away_longer_each_time() {
        let mut waits = Waits::new();
        let eof = || SessionEnd::Link(NoSession::Connect(ErrorKind::UnexpectedEof.into()));

        let crowded: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &eof())).collect();
        waits.opened(Duration::from_secs(20));
        let again = waits.after(Reached::Nothing, &eof());
        let refused = SessionEnd::Link(NoSession::Connect(ErrorKind::ConnectionRefused.into()));
        let absent: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &refused)).collect();

        assert!(crowded.iter().all(|wait| (CROWDED_WAIT..=STAY_AWAY_MAX).contains(wait)), "{crowded:?}");
        assert!(crowded.iter().any(|wait| *wait > Duration::from_secs(10)));
        assert!(again <= CROWDED_WAIT * 3);
        assert!(absent.iter().all(|wait| *wait <= Duration::from_secs(5)), "a server that starts is found soon");
    }

    #[test]
    fn an_agent_of_a_small_fleet_stays_away_for_a_shorter_time() {
        let mut waits = Waits::new();
        waits.opened(Duration::from_secs(5));
        let closed = SessionEnd::Link(NoSession::Closed);

        let crowded: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &closed)).collect();

        assert!(crowded.iter().all(|wait| *wait <= Duration::from_secs(10)), "{crowded:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_reached_is_not_taken_for_a_crowded_one() {
        let (mut waits, begun) = (Waits::new(), tokio::time::Instant::now());
        let unreachable = within_limit(std::future::pending(), |(): ()| std::future::pending::<Result<(), _>>());
        let unreachable = unreachable.await.unwrap_err();
        let silent = within_limit(std::future::ready(Ok(())), |()| std::future::pending::<Result<(), _>>());
        let silent = silent.await.unwrap_err();

        let waited: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &unreachable)).collect();

        assert!(waited.iter().all(|wait| *wait <= Duration::from_secs(5)), "{waited:?}");
        assert!(
            matches!(&unreachable, SessionEnd::Link(NoSession::Connect(error)) if error.kind() == ErrorKind::TimedOut)
        );
        assert!(matches!(&silent, SessionEnd::Link(no_session @ NoSession::Silent) if is_crowded(no_session)));
        assert!(begun.elapsed() < 2 * CONNECT_LIMIT + Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn an_agent_comes_back_when_a_busy_server_says_and_not_later_than_that_may_be() {
        let mut waits = Waits::new();
        let mut busy = |wait| waits.after(Reached::Nothing, &SessionEnd::Link(NoSession::Busy(wait)));

        assert_eq!(busy(Duration::from_secs(17)), Duration::from_secs(17));
        assert_eq!([Duration::ZERO, Duration::MAX].map(busy), [BUSY_WAIT_MIN, BUSY_WAIT_MAX]);
    }
}

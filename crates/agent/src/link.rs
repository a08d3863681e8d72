//! The session with the server: connect, greet, carry, and come back when it breaks.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use proctor_host::Host;
use proctor_runtime::{Backoff, clock};
use proctor_wire::{AgentCodec, FromAgent, FromServer, WireError};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::codec::Framed;
use uuid::Uuid;

use crate::driver::{Inbox, Input};
use crate::identity::Identity;
use crate::policy::PolicyFile;
use crate::words;
use crate::{AgentError, Options};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const WRITE_LIMIT: Duration = Duration::from_secs(15);
/// Messages that may wait for the socket.
const OUTBOX_MAX: usize = 1024;
/// A certificate is renewed when less than this is left.
const RENEW_BEFORE: Duration = Duration::from_secs(10 * 24 * 3600);
/// Unanswered beats after which the server is taken for gone.
const SILENT_BEATS_MAX: u32 = 3;
/// A session of this length was a success.
const STEADY: Duration = Duration::from_secs(30);
const RENEW_PERIOD: Duration = Duration::from_secs(3600);
/// After a refusal that only people can cure.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Link {
    server: String,
    identity: Arc<Identity>,
    host: Host,
    policy: Arc<PolicyFile>,
    inbox: Inbox,
    seen_generation: Arc<AtomicU64>,
    /// Of this run of the agent, so that the server tells it from a copy.
    nonce: Uuid,
    /// The epoch of the last session of this run.
    last_epoch: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("cannot connect")]
    Connect(#[from] std::io::Error),
    #[error("the server does not answer")]
    Silent,
    #[error("the server does not read")]
    Stuck,
    #[error("the server closed the connection")]
    Closed,
    #[error("the server is busy")]
    Busy(Duration),
    #[error("the server refused: {reason}")]
    Refused { reason: String, retry: bool },
    #[error("the link broke")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Expired(String),
    #[error("the identity cannot be used")]
    Pki(#[from] proctor_pki::PkiError),
    #[error("the agent ends")]
    Shutdown,
}

type Frames = Framed<TlsStream<TcpStream>, AgentCodec>;

impl Link {
    pub(crate) fn new(
        options: &Options,
        identity: Arc<Identity>,
        host: Host,
        policy: Arc<PolicyFile>,
        inbox: Inbox,
        seen_generation: Arc<AtomicU64>,
    ) -> Self {
        Self {
            server: options.server.clone(),
            identity,
            host,
            policy,
            inbox,
            seen_generation,
            nonce: Uuid::new_v4(),
            last_epoch: AtomicU64::new(0),
        }
    }

    /// One session after the other, until the agent ends.
    pub(crate) async fn run(self) -> Result<(), AgentError> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let ended = match self.connect().await {
                Ok((frames, beat)) => {
                    let since = self.host.now();
                    let ended = Box::pin(self.carry(frames, beat)).await;
                    // A session that breaks again at once is no reason to come back at once.
                    if self.host.now().saturating_sub(since) > STEADY {
                        backoff.reset();
                    }
                    let _ = self.inbox.send(Input::Disconnected).await;
                    ended
                }
                Err(ended) => ended,
            };
            let wait = match &ended {
                Ended::Shutdown => return Ok(()),
                Ended::Busy(wait) => *wait,
                Ended::Refused { retry: false, .. } => REFUSED_WAIT,
                Ended::Connect(_)
                | Ended::Silent
                | Ended::Stuck
                | Ended::Closed
                | Ended::Refused { .. }
                | Ended::Wire(_)
                | Ended::Expired(_)
                | Ended::Pki(_) => backoff.next_wait(),
            };
            let why = match &ended {
                Ended::Connect(error) => words::explain(error, &self.server),
                Ended::Wire(error) => words::explain(error, &self.server),
                Ended::Silent
                | Ended::Stuck
                | Ended::Closed
                | Ended::Busy(_)
                | Ended::Refused { .. }
                | Ended::Expired(_)
                | Ended::Pki(_)
                | Ended::Shutdown => proctor_runtime::chain(&ended),
            };
            tracing::warn!(server = %self.server, why, ?wait, "no session with the server");
            tokio::time::sleep(wait).await;
        }
    }

    async fn connect(&self) -> Result<(Frames, Duration), Ended> {
        let greeting = Box::pin(self.greet());
        tokio::time::timeout(CONNECT_LIMIT, greeting).await.map_err(|_| Ended::Silent)?
    }

    async fn greet(&self) -> Result<(Frames, Duration), Ended> {
        let identity = &self.identity;
        if let Ok(expires_at) = proctor_pki::expires_at(&identity.current_certificate())
            && expires_at.as_millisecond() <= clock::unix_millis()
        {
            return Err(Ended::Expired(words::expired(expires_at)));
        }
        let config =
            proctor_pki::session_config(&identity.authority_pem, &identity.current_certificate(), &identity.key)?;
        let tcp = TcpStream::connect(&self.server).await?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await?;
        let mut frames = Framed::new(tls, AgentCodec::new());
        let mut facts = self.host.facts();
        facts.agent_version = env!("CARGO_PKG_VERSION").to_owned();
        let policy = self.policy.in_force().map(|path| path.display().to_string());
        facts.policy = Some(policy.unwrap_or_default());
        let hello = FromAgent::Hello {
            agent: identity.agent.clone(),
            boot: self.host.boot_id().clone(),
            facts,
            seen_generation: self.seen_generation.load(Ordering::Acquire),
            nonce: self.nonce.as_bytes().to_vec(),
            time_ms: Some(clock::unix_millis()),
            seen_epoch: Some(identity.seen_epoch().max(self.last_epoch.load(Ordering::Acquire))),
        };
        frames.send(hello).await?;
        match frames.next().await.ok_or(Ended::Closed)?? {
            FromServer::Welcome { epoch, beat_interval, .. } => {
                tracing::info!(server = %self.server, epoch, "connected");
                frames.send(self.settle(epoch)).await?;
                Ok((frames, beat_interval))
            }
            FromServer::Busy { retry_after } => Err(Ended::Busy(retry_after)),
            FromServer::Refused { reason, retry } => Err(Ended::Refused { reason, retry }),
            FromServer::Enrolled { .. }
            | FromServer::Operate { .. }
            | FromServer::Acknowledge { .. }
            | FromServer::Cancel { .. }
            | FromServer::Assign { .. }
            | FromServer::AssignPools { .. }
            | FromServer::Renewed { .. }
            | FromServer::EventsSeen { .. }
            | FromServer::Beat
            | FromServer::Unreadable { .. }
            | FromServer::Unknown => Err(Ended::Closed),
        }
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

    async fn carry(&self, frames: Frames, beat: Duration) -> Ended {
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        if self.inbox.send(Input::Connected(outbox)).await.is_err() {
            return Ended::Shutdown;
        }
        let (sender, receiver) = frames.split();
        let result = tokio::select! {
            result = self.listen(receiver, beat * SILENT_BEATS_MAX) => result,
            result = self.talk(sender, messages, beat) => result,
        };
        match result {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn listen(&self, mut receiver: SplitStream<Frames>, silence_max: Duration) -> Result<Infallible, Ended> {
        let mut heard = self.host.now();
        loop {
            let message = tokio::time::timeout(silence_max, receiver.next()).await.map_err(|_| Ended::Silent)?;
            // After a long sleep what waits in the socket is old: the server has given it up.
            let now = self.host.now();
            if now.saturating_sub(heard) > silence_max {
                return Err(Ended::Silent);
            }
            heard = now;
            match message.ok_or(Ended::Closed)?? {
                FromServer::Beat => {}
                FromServer::Renewed { certificate_pem } => self.renewed(&certificate_pem),
                FromServer::Refused { reason, retry } => return Err(Ended::Refused { reason, retry }),
                message @ (FromServer::Operate { .. }
                | FromServer::Acknowledge { .. }
                | FromServer::Cancel { .. }
                | FromServer::Assign { .. }
                | FromServer::AssignPools { .. }
                | FromServer::EventsSeen { .. }
                | FromServer::Enrolled { .. }
                | FromServer::Welcome { .. }
                | FromServer::Busy { .. }
                | FromServer::Unreadable { .. }
                | FromServer::Unknown) => self.inbox.send(Input::Server(message)).await.map_err(|_| Ended::Shutdown)?,
            }
        }
    }

    async fn talk(
        &self,
        mut sender: SplitSink<Frames, FromAgent>,
        mut messages: mpsc::Receiver<FromAgent>,
        beat: Duration,
    ) -> Result<Infallible, Ended> {
        let mut beats = tokio::time::interval(beat);
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
            let sent = async {
                feed(&mut sender, message).await?;
                // What else waits goes into the same flush.
                while let Ok(message) = messages.try_recv() {
                    feed(&mut sender, message).await?;
                }
                sender.flush().await
            };
            tokio::time::timeout(WRITE_LIMIT, sent).await.map_err(|_| Ended::Stuck)??;
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
            Ok(()) => tracing::info!("the certificate was renewed"),
            Err(error) => tracing::error!(%error, "the renewed certificate cannot be saved"),
        }
    }
}

/// A message that no frame can carry is left out: the next session would fail on it too.
async fn feed(sender: &mut SplitSink<Frames, FromAgent>, message: FromAgent) -> Result<(), WireError> {
    match sender.feed(message).await {
        Err(error @ (WireError::FrameTooLarge { .. } | WireError::TooManyItems { .. })) => {
            tracing::error!(%error, "left out a message that is too large");
            Ok(())
        }
        fed => fed,
    }
}

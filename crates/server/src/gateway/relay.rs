//! A relay, and the agents that come through it.
//!
//! Promised: a relay carries and does nothing else. It is authenticated by its own key and certificate; each agent
//! behind it must present a certificate of the authority and sign its hello for a nonce from this server, so a relay
//! can neither invent nor replay an agent; agents of another cloud area are refused. From then on an agent has its
//! ordinary session, signed both ways. Streams, pending hellos and bytes of a relay are bounded; one that breaks the
//! rules of the connection is cut off with everything it carries.
//! Absent: how sessions open and what they say (see `greeting`, `session`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::RelayId;
use proctor_runtime::{Greeting, Tasks, chain};
use proctor_store::{EnrolRefusal, RelayEnrolment, RelayRecord};
use proctor_wire::{
    Budgeted, Counted, FrameBudget, FromServer, Incoming, Lost, MuxError, OpeningPace, Outgoing, RELAY_STREAMS_MAX,
    RelayCodec, RelayFrame, Streams, ends, framed, hang_up, rejoin,
};
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::connection::{Connection, Direct};
use super::enrol::{CERTIFICATE_LIFETIME, Refused};
use super::greeting::{self, RelayedHello, Via};
use super::renewals::RenewalPace;
use super::{GREETING_LIMIT, Gateway, now};
use crate::control::{ConnectedRelay, ControlError, RelayConnection};

/// How often a relay reports which agents it has heard.
const BEATS_INTERVAL: Duration = Duration::from_secs(1);
/// A relay that sends no byte for this long is gone. Less than for an agent behind it: the agents of a hanging relay
/// are to be waited for, and not given up one by one.
const SILENCE_MAX: Duration = Duration::from_secs(7);
/// Agents on one connection that have not greeted yet, each with a frame of an enrolment's size at most; a relay of ours
/// has fewer under way.
const GREETINGS_MAX: usize = 128;
/// What the large frames of all agents on one connection take together. Nothing of a frame is verified before it is whole,
/// and it is the relay that finishes it.
const LARGE_FRAMES_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Replies to a relay itself; what does not fit is requested again.
const REPLIES_MAX: usize = 4;

type Frames = Outgoing<Direct, RelayFrame, RelayFrame>;
type Arrivals = Incoming<Direct, RelayFrame, RelayFrame>;

#[derive(Debug, thiserror::Error)]
enum RelayEnd {
    #[error("the relay closed the connection")]
    Closed,
    #[error("the relay was silent for too long")]
    Silent,
    #[error("the relay does not read")]
    Stuck,
    #[error("the relay was revoked")]
    Revoked,
    #[error("the relay asked to renew its certificate with another key")]
    RenewKey,
    #[error("the relay violated the protocol")]
    Rules(#[from] MuxError),
    #[error("the relay opened streams faster than it may")]
    Hurried,
    #[error("the relay sent a message that only a server may send")]
    Misspoken,
    #[error("the link broke")]
    Link(#[source] proctor_wire::WireError),
    #[error("cannot issue a certificate")]
    Pki(#[from] proctor_pki::PkiError),
}

impl From<Lost> for RelayEnd {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => Self::Closed,
            Lost::Silent => Self::Silent,
            Lost::Stuck => Self::Stuck,
            Lost::Broken(error) => Self::Link(error),
        }
    }
}

/// What a relay asks for when it enrols.
pub(super) struct Request {
    pub(super) token_id: String,
    pub(super) token_secret: String,
    pub(super) csr_der: Vec<u8>,
    pub(super) cloud: u32,
}

/// As for agents: without a valid token nobody reaches the store's writer or the authority's key.
pub(super) async fn enrol(gateway: &Gateway, request: Request, peer: SocketAddr) -> Result<FromServer, Refused> {
    let later = |error: &dyn std::fmt::Display| Refused::Later(error.to_string());
    let Request { token_id, token_secret, csr_der, cloud } = request;
    let token_secret_hash = proctor_pki::hash_secret(&token_secret);
    let known = gateway.control.knows_relay_token(&token_id, &token_secret_hash).await;
    if !known.map_err(|error| later(&error))? {
        return Err(Refused::NoRelayToken);
    }
    let key_fingerprint = proctor_pki::requested_fingerprint(&csr_der).map_err(Refused::Request)?;
    let relay = RelayId::from_uuid(Uuid::now_v7());
    let remote = Some(peer.ip());
    let enrolment = RelayEnrolment { token_id, token_secret_hash, cloud, relay, key_fingerprint, remote };
    let enrolled: Result<RelayId, EnrolRefusal> =
        gateway.control.enrol_relay(enrolment).await.map_err(|error| later(&error))?;
    let relay = enrolled?;
    let believed = gateway.control.believed();
    let authorities = &believed.authorities;
    let certificate_pem =
        authorities.issue_relay(&csr_der, &relay, now(), CERTIFICATE_LIFETIME).map_err(|error| later(&error))?;
    tracing::info!(%peer, %relay, cloud, "relay enrolled");
    Ok(FromServer::RelayEnrolled {
        relay,
        certificate_pem,
        authority_pem: authorities.current().certificate_pem().to_owned(),
    })
}

/// Who presented a relay's certificate, if that is what it is.
fn presented(tls: &Direct) -> proctor_pki::Result<(RelayId, String)> {
    let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
    let relay = proctor_pki::relay_of(chain)?;
    Ok((relay, proctor_pki::key_fingerprint_der(&chain[0])?))
}

/// Authenticates it and starts the connection's task.
pub(super) async fn open(tls: Direct, peer: SocketAddr, slot: &Greeting, gateway: Arc<Gateway>, tasks: Tasks) {
    let (relay, key) = match presented(&tls) {
        Ok(presented) => presented,
        Err(error) => return tracing::warn!(%peer, %error, "peer claims to be a relay without a relay certificate"),
    };
    let counters = tls.get_ref().0.counters();
    let (mut frames, mut arrivals): (Frames, Arrivals) = ends(framed(tls, RelayCodec::relay()), counters);
    let Ok(RelayFrame::Hello { version }) = arrivals.next(GREETING_LIMIT, GREETING_LIMIT, |_| true).await else {
        return tracing::debug!(%peer, %relay, "a relay did not greet");
    };
    let streams = Streams::new(RELAY_STREAMS_MAX);
    slot.enters_store();
    let met = meet(&gateway, &relay, &key, peer, streams, version).await;
    slot.leaves_store();
    let connection = match met {
        Ok(connection) => connection,
        Err((reason, retry)) => {
            if let Some(unlogged) = gateway.refused.turn(Instant::now()) {
                tracing::warn!(%peer, %relay, reason, unlogged, "relay refused");
            }
            let is_said = frames.send(RelayFrame::Refused { reason, retry }).await.is_ok();
            if let Some(tls) = rejoin(frames, arrivals).filter(|_| is_said) {
                Box::pin(hang_up(tls)).await;
            }
            return;
        }
    };
    gateway.greetings.know([peer.ip()]);
    tracing::info!(%peer, %relay, cloud = connection.cloud, "relay connected");
    let shutdown = tasks.shutdown();
    let of_tasks = tasks.clone();
    tasks.spawn_to_end("relay connection", async move {
        let carried = Box::pin(carry(&gateway, &connection, &key, peer, frames, arrivals, &of_tasks));
        let goodbyes = async {
            shutdown.cancelled().await;
            // Each session on it has its own time, and then they are sent.
            tokio::time::sleep(gateway.policy.goodbye_limit.saturating_mul(2)).await;
        };
        let ended = tokio::select! {
            ended = carried => ended,
            () = goodbyes => Ok(()),
        };
        let Err(ended) = ended else { return };
        if shutdown.is_cancelled() {
            return; // it is the server that is gone, not the relay
        }
        let agents = connection.streams.count();
        tracing::warn!(%relay, cloud = connection.cloud, agents, why = %chain(&ended), "relay disconnected");
        gateway.control.relay_disconnected(connection, &key).await;
    });
}

/// The connection, or why there is none and whether the relay shall come again.
async fn meet(
    gateway: &Gateway,
    relay: &RelayId,
    key: &str,
    peer: SocketAddr,
    streams: Streams,
    version: String,
) -> Result<ConnectedRelay, (String, bool)> {
    let record = may_connect(gateway, relay, key, peer).await?;
    let connected = gateway.control.relay_connected(&record, streams, version).ok_or_else(|| {
        ("the relay has too many connections: do two relays use copies of one state directory?".to_owned(), true)
    })?;
    // A revocation between the two has found no connection to end.
    may_connect(gateway, relay, key, peer).await?;
    Ok(connected)
}

async fn may_connect(
    gateway: &Gateway,
    relay: &RelayId,
    key: &str,
    peer: SocketAddr,
) -> Result<RelayRecord, (String, bool)> {
    let met: Result<Option<RelayRecord>, ControlError> = gateway.control.meet_relay(relay, key, Some(peer.ip())).await;
    match met {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err((
            "the relay was revoked, or this server does not know it: remove its state directory and enrol it again \
             (proctor token create --relay)"
                .to_owned(),
            false,
        )),
        Err(error) => {
            tracing::warn!(%relay, error = %chain(&error), "relay not admitted");
            Err(("the server cannot let relays in now: its log says why".to_owned(), true))
        }
    }
}

/// Until the connection ends; returns when the server shuts down, and the sessions on it have sent their last
/// message.
async fn carry(
    gateway: &Arc<Gateway>,
    connection: &ConnectedRelay,
    key: &str,
    peer: SocketAddr,
    mut frames: Frames,
    mut arrivals: Arrivals,
    tasks: &Tasks,
) -> Result<(), RelayEnd> {
    frames.send(RelayFrame::Welcome { beats_interval: BEATS_INTERVAL }).await?;
    let (replies, mut to_reply) = tokio::sync::mpsc::channel(REPLIES_MAX);
    let opener = Opener {
        gateway: gateway.clone(),
        connection: connection.shared(),
        greetings: Arc::new(Semaphore::new(GREETINGS_MAX)),
        paces: Mutex::new(Paces {
            openings: OpeningPace::new(Instant::now()),
            refusals: OpeningPace::new(Instant::now()),
        }),
        large_frames: FrameBudget::new(LARGE_FRAMES_BYTES_MAX),
        peer,
        tasks: tasks.clone(),
    };
    let streams = &connection.streams;
    let listen = async {
        let mut renewals = RenewalPace::default();
        loop {
            let frame = arrivals.next(SILENCE_MAX, SILENCE_MAX, |_| true).await?;
            let Some(frame) = streams.handle(frame)? else { continue };
            match frame {
                RelayFrame::Open { stream, certificate_der } => opener.open(stream, certificate_der)?,
                RelayFrame::Beats { streams: heard } => {
                    streams.beat(&heard)?;
                    let _ = replies.try_send(RelayFrame::Beats { streams: Vec::new() });
                }
                RelayFrame::Renew { csr_der } => {
                    if !renewals.take(gateway.control.believed().generation, Instant::now()) {
                        continue;
                    }
                    gateway.control.relay_renews(&connection.relay).await;
                    let _ = replies.try_send(renewed(gateway, connection, key, &csr_der)?);
                }
                RelayFrame::Trusted(trusted) => gateway.control.relay_trusts(&connection.relay, trusted).await,
                RelayFrame::Unknown => {}
                RelayFrame::Hello { .. }
                | RelayFrame::Welcome { .. }
                | RelayFrame::Refused { .. }
                | RelayFrame::Renewed { .. }
                | RelayFrame::Authorities(_)
                | RelayFrame::Data { .. }
                | RelayFrame::Credit { .. }
                | RelayFrame::Close { .. } => return Err(RelayEnd::Misspoken),
            }
        }
    };
    let shutdown = tasks.shutdown();
    let mut authorities = gateway.control.authority_generations();
    authorities.mark_changed();
    let talk = async {
        loop {
            // Before the streams are looked at: what they have to say is there before they are left.
            let is_over = shutdown.is_cancelled() && streams.count() == 0;
            while let Ok(reply) = to_reply.try_recv() {
                frames.feed(reply).await?;
            }
            match streams.poll_frame() {
                Some(frame) => {
                    frames.feed(frame).await?;
                    continue;
                }
                None => frames.flush().await?,
            }
            if is_over {
                return Ok(());
            }
            tokio::select! {
                () = streams.woken() => {}
                Ok(()) = authorities.changed() => if let Some(announced) = gateway.control.announcement_of(&connection.relay) {
                    frames.feed(RelayFrame::Authorities(announced)).await?;
                },
                () = shutdown.cancelled(), if !shutdown.is_cancelled() => {}
                Some(reply) = to_reply.recv() => frames.feed(reply).await?,
            }
        }
    };
    tokio::select! {
        ended = listen => ended,
        ended = talk => ended,
        () = connection.dismissed() => Err(RelayEnd::Revoked),
    }
}

/// A certificate for the key that the relay has.
fn renewed(gateway: &Gateway, connection: &RelayConnection, key: &str, csr_der: &[u8]) -> Result<RelayFrame, RelayEnd> {
    if proctor_pki::requested_fingerprint(csr_der)? != key {
        return Err(RelayEnd::RenewKey);
    }
    let believed = gateway.control.believed();
    let authorities = &believed.authorities;
    let certificate_pem = authorities.issue_relay(csr_der, &connection.relay, now(), CERTIFICATE_LIFETIME)?;
    Ok(RelayFrame::Renewed { certificate_pem })
}

/// Opens the sessions of the agents on one connection.
struct Opener {
    gateway: Arc<Gateway>,
    connection: Arc<RelayConnection>,
    greetings: Arc<Semaphore>,
    paces: Mutex<Paces>,
    large_frames: FrameBudget,
    peer: SocketAddr,
    tasks: Tasks,
}

/// What a relay may open, and what of more is refused before it counts as a flood.
#[derive(Debug)]
struct Paces {
    openings: OpeningPace,
    refusals: OpeningPace,
}

impl Opener {
    /// Beyond the pace a stream is closed before anything of it is verified. A relay of ours keeps to the pace.
    fn open(&self, number: u32, certificate_der: Vec<u8>) -> Result<(), RelayEnd> {
        let Some(stream) = self.connection.streams.accept(number)? else { return Ok(()) };
        let (mut paces, at) = (self.paces.lock(), Instant::now());
        if paces.openings.take(at).is_err() {
            return paces.refusals.take(at).map_err(|_| RelayEnd::Hurried); // dropped, and so closed
        }
        drop(paces);
        let Ok(greeting) = self.greetings.clone().try_acquire_owned() else {
            return Ok(()); // dropped, and so closed
        };
        let RelayConnection { relay, cloud, streams, .. } = &*self.connection;
        let (relay, cloud, streams) = (relay.clone(), *cloud, streams.clone());
        let stream = Counted::new(Budgeted::new(stream, self.large_frames.clone()));
        streams.note_beats(number, &stream.counters());
        let brought = RelayedHello {
            connection: Connection::Relayed(stream),
            certificate: CertificateDer::from(certificate_der),
            peer: self.peer,
            via: Via { relay: relay.clone(), cloud, streams },
        };
        let (gateway, tasks) = (self.gateway.clone(), self.tasks.clone());
        self.tasks.spawn("relayed greeting", async move {
            let greeting_of = Box::pin(greeting::open_relayed(brought, gateway, tasks));
            if tokio::time::timeout(GREETING_LIMIT, greeting_of).await.is_err() {
                tracing::debug!(%relay, "an agent behind a relay did not finish its greeting in time");
            }
            drop(greeting);
        });
        Ok(())
    }
}

//! Where agents and relays connect: TLS, enrolment and sessions.
//!
//! Promised: a session is opened only for the agent named in its certificate, and only with the host's current key;
//! frames are bounded; a peer that sends or takes no byte for a few heartbeats is disconnected, and one on a slow
//! link is not; a fleet that reconnects all at once is admitted at a rate that leaves CPU time for everything else.
//! Absent: what operations mean; the session only carries them.
//! Start at `session` (one agent) and `greeting` (how it opens); `relay` for agents behind relays.

mod admission;
mod busy;
mod certificate;
mod connection;
mod enrol;
mod greeting;
mod pacing;
mod proof;
mod relay;
mod renewals;
mod replies;
mod returning;
mod sender;
mod session;
mod signing;
mod talk;
mod tickets;
mod turns;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_pki::{Authority, AuthoritySecret};
use proctor_runtime::{Backoff, Greeting, Handshakes, Tasks, clock, prepare_link};
use proctor_store::Store;
use proctor_wire::{ALPN_ENROL, ALPN_RELAY, ALPN_SESSION, Counted};
use rustls::HandshakeKind;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::ServerError;
use crate::control::Control;
use crate::log_limit::{AgentLogLimit, LogLimit};
use admission::{Admission, Turn};
use busy::Busy;
use certificate::LinkCertificate;
use connection::Connection;
use signing::Signing;
use turns::Origin;

pub(crate) use signing::{rotate as rotate_signing_key, secret as signing_secret};
pub(crate) use tickets::keys as ticket_keys;

pub(crate) const AUTHORITY: &str = "authority";
/// For the handshake and the greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// The server's own authority, the old one while another takes over: read from the store, made on first use.
pub async fn authority(store: &Arc<dyn Store>) -> Result<Authority, ServerError> {
    Ok(Authority::load(&AuthoritySecret::from_bytes(&authority_secret(store).await?)?)?)
}

/// As it is stored, its successor included.
pub(crate) async fn authority_secret(store: &Arc<dyn Store>) -> Result<Vec<u8>, ServerError> {
    Ok(match store.secret(AUTHORITY).await? {
        Some(bytes) => bytes,
        None => store.secret_or_insert(AUTHORITY, Authority::generate(now())?.to_bytes()).await?,
    })
}

pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).expect("the clock's time is a time")
}

/// What every connection needs.
#[derive(Debug)]
struct Gateway {
    control: Control,
    signing: Arc<Signing>,
    greetings: Arc<Handshakes>,
    admission: Arc<Admission>,
    busy: Arc<Busy>,
    strangers: enrol::UnverifiedPeerLog,
    /// Agents whose session could not be opened: with a full store, all of them come again and again.
    unopened: enrol::UnverifiedPeerLog,
    /// Agents that get no session, or send what cannot be kept or understood.
    refused: LogLimit,
    unkept: LogLimit,
    /// Agents that leave before they have recorded their session.
    unsettled: LogLimit,
    /// Agents that come and go.
    sessions: AgentLogLimit,
    policy: LinkPolicy,
}

/// The operator's settings for agents, and how long they are waited for.
#[derive(Clone, Copy, Debug)]
pub struct LinkPolicy {
    /// A new host gets no work until an operator approves it.
    pub approve_hosts: bool,
    /// Agents sign what they report, even if they are connected directly.
    pub signed_reports: bool,
    /// How long an agent behind a relay is assumed to be there without its own signed message.
    pub relayed_proof_max: Duration,
    /// When the server ends, each session has so long for its last word.
    pub goodbye_limit: Duration,
}

impl Default for LinkPolicy {
    fn default() -> Self {
        Self {
            approve_hosts: false,
            signed_reports: false,
            relayed_proof_max: proof::PROOF_MAX,
            goodbye_limit: session::GOODBYE_LIMIT,
        }
    }
}

/// Listens for agents until `tasks` end; returns the address.
pub(crate) async fn serve(
    address: SocketAddr,
    control: Control,
    policy: LinkPolicy,
    tasks: &Tasks,
) -> Result<SocketAddr, ServerError> {
    let believed = control.reload_authorities().await?;
    control.metrics().count_certificates(control.certificates_signed());
    let authority = believed.authorities.current();
    let signing = Signing::new(&control.signing_secret().await?, control.control_epoch().await?, authority)?;
    let signing = Arc::new(signing);
    let tickets = tickets::load(&control).await;
    let certificate = LinkCertificate::issue(&believed, tickets.clone(), now())?;
    control.serves_link_until(certificate.expires_at.as_second());
    control.signs_until(signing.signer().expires_at().as_second());
    let listen_error = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    control.serves_link_at(address.port());
    let (strangers, unopened) = (enrol::UnverifiedPeerLog::default(), enrol::UnverifiedPeerLog::default());
    let (greetings, refused, unkept) = (Arc::default(), LogLimit::default(), LogLimit::default());
    let (unsettled, sessions) = (LogLimit::default(), AgentLogLimit::default());
    let admission = Arc::new(Admission::new(control.metrics().link_gauges()));
    let gateway = Arc::new(Gateway {
        control,
        signing,
        greetings,
        admission,
        busy: Arc::default(),
        strangers,
        unopened,
        refused,
        unkept,
        unsettled,
        sessions,
        policy,
    });
    let of_tasks = tasks.clone();
    tasks.spawn_critical("ticket keys", tickets::follow(gateway.control.clone(), tickets));
    tasks.spawn_critical("signing key", signing::follow(gateway.clone()));
    tasks.spawn_critical("link admission", gateway.admission.clone().give_turns());
    tasks.spawn_critical("link listener", async move { accept(listener, certificate, gateway, of_tasks).await });
    Ok(address)
}

async fn accept(listener: TcpListener, mut certificate: LinkCertificate, gateway: Arc<Gateway>, tasks: Tasks) {
    know_hosts(&gateway).await;
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of descriptors: existing sessions stay.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        backoff.reset();
        if certificate.renew_if_due(&gateway.control.believed(), now()) {
            gateway.control.serves_link_until(certificate.expires_at.as_second());
        }
        // Nobody is waited for here: known agents stand in the same queue as strangers until they are accepted.
        let silent = gateway.greetings.enter(peer.ip());
        let (gateway, acceptor, of_tasks) = (gateway.clone(), certificate.acceptor.clone(), tasks.clone());
        tasks.spawn("link greeting", async move {
            if !silent.speaks(&stream).await {
                gateway.control.metrics().admission("silent");
                return tracing::debug!(%peer, "a peer said nothing");
            }
            let admitted = gateway.greetings.admit(peer.ip()).await;
            let Some(admitted) = admitted else {
                gateway.control.metrics().admission("full");
                return tracing::debug!(%peer, "too many link handshakes: a new connection is closed");
            };
            let greeting = admitted.greeting.clone();
            let greeting = Box::pin(admit_and_greet(stream, peer, greeting, acceptor, gateway.clone(), of_tasks));
            tokio::select! {
                ended = tokio::time::timeout(GREETING_LIMIT, greeting) => if ended.is_err() {
                    tracing::debug!(%peer, "a peer did not finish its greeting in time");
                },
                () = admitted.greeting.gives_way.cancelled() => {
                    gateway.control.metrics().admission("evicted");
                    tracing::debug!(%peer, "a peer that stalled or waited gives way");
                }
            }
        });
    }
}

/// A peer whose turn it is.
struct Guest {
    peer: SocketAddr,
    greeting: Arc<Greeting>,
    turn: Turn,
}

/// A peer that has spoken waits for its turn.
async fn admit_and_greet(
    stream: TcpStream,
    peer: SocketAddr,
    greeting: Arc<Greeting>,
    acceptor: TlsAcceptor,
    gateway: Arc<Gateway>,
    tasks: Tasks,
) {
    let metrics = gateway.control.metrics();
    if has_left(&stream).await {
        return metrics.admission("left");
    }
    greeting.waits();
    let origin = Origin::Direct { address: greeting.peer(), is_known: greeting.is_known() };
    let Some(turn) = gateway.admission.turn(origin).await else {
        metrics.admission("late");
        return tracing::debug!(%peer, "a peer waited too long for its handshake");
    };
    greeting.begins();
    if has_left(&stream).await {
        return metrics.admission("left");
    }
    metrics.admission("admitted");
    Box::pin(greet(stream, Guest { peer, greeting, turn }, acceptor, gateway, tasks)).await;
}

/// Whether the peer has closed its end: nobody would benefit from a handshake.
async fn has_left(stream: &TcpStream) -> bool {
    stream.ready(Interest::READABLE).await.map_or(true, |ready| ready.is_read_closed())
}

/// Agents come from the addresses of their hosts, where nothing translates them.
async fn know_hosts(gateway: &Gateway) {
    match gateway.control.known_addresses().await {
        Ok(addresses) => gateway.greetings.know(addresses),
        Err(error) => tracing::warn!(%error, "cannot read the addresses of hosts and relays"),
    }
}

/// TLS, then what its ALPN name asks for.
async fn greet(stream: TcpStream, mut guest: Guest, acceptor: TlsAcceptor, gateway: Arc<Gateway>, tasks: Tasks) {
    let peer = guest.peer;
    let _ = prepare_link(&stream);
    let tls = match guest.turn.run(Box::pin(acceptor.accept(Counted::new(stream)))).await {
        Ok(tls) => tls,
        Err(error) => {
            gateway.control.metrics().handshake("failed");
            gateway.strangers.log_handshake(peer, &error);
            return;
        }
    };
    guest.turn.came_through();
    let is_resumed = tls.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
    gateway.control.metrics().handshake(if is_resumed { "resumed" } else { "full" });
    match tls.get_ref().1.alpn_protocol() {
        Some(ALPN_ENROL) => guest.turn.run(Box::pin(enrol::enrol(tls, peer, &gateway))).await,
        Some(ALPN_SESSION) => greeting::open_direct(tls, guest, gateway, tasks).await,
        // A ticket would outlive the certificate that it was given for; relays of ours ask for none.
        Some(ALPN_RELAY) if !is_resumed => {
            let Guest { greeting, mut turn, .. } = guest;
            turn.run(Box::pin(relay::open(tls, peer, &greeting, gateway, tasks))).await;
        }
        Some(_) | None => tracing::debug!(%peer, "a peer offers no supported protocol"),
    }
}

//! Where agents connect: sessions, which end here and continue as streams, and enrolments, which pass through.
//!
//! Promised: without a connection to the server nobody is let in, so that agents try another relay at once; peers
//! that stall in their handshake keep nobody out; one agent key has only a few connections; an enrolment is
//! protected up to the server, and a relay sees neither the token nor the result. Nothing but enrolments passes
//! through, a few per network, each short. Absent: which agents may connect; the server decides.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_runtime::{Backoff, Handshakes, Tasks, end_unacknowledged, prepare_link};
use proctor_wire::{ALPN_ENROL, ALPN_SESSION, Counted};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::boarding::{Boarding, NotBoarded, tell_busy};
use crate::client_hello::{PrefixedStream, peek_alpn};
use crate::enrolments::Enrolments;
use crate::greetings::KeyedLimit;
use crate::identity::Identity;
use crate::passenger;
use crate::upstream::Upstreams;
use crate::{Options, RelayError};

/// For the handshake.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// From an agent's handshake to its welcome: less than an agent waits. A busy server gets all of that time: an
/// agent that is cut off greets again, and costs it more.
const WELCOME_LIMIT: Duration = Duration::from_secs(9);
/// Connections per key: an agent may come back before its old ones are gone.
const OF_KEY_MAX: usize = 4;
/// How long an enrolment may take, how long it may be silent, and how long each address of the server is tried.
const ENROLMENT_LIMIT: Duration = Duration::from_secs(20);
const ENROLMENT_SILENCE_MAX: Duration = Duration::from_secs(5);
const SERVER_CONNECT_LIMIT: Duration = Duration::from_secs(3);

struct ListenerContext {
    identity: Arc<Identity>,
    upstreams: Arc<Upstreams>,
    boarding: Boarding,
    greetings: Arc<Handshakes>,
    enrolments: Enrolments,
    agents: Arc<Semaphore>,
    of_keys: KeyedLimit<String>,
}

/// Listens until `tasks` end; returns the address.
pub(crate) async fn start(
    options: &Options,
    identity: Arc<Identity>,
    upstreams: Arc<Upstreams>,
    tasks: &Tasks,
) -> Result<SocketAddr, RelayError> {
    let listen_error = |source| RelayError::Listen { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let context = Arc::new(ListenerContext {
        identity,
        upstreams,
        boarding: Boarding::default(),
        greetings: Arc::default(),
        enrolments: Enrolments::default(),
        agents: Arc::new(Semaphore::new(options.agents_max as usize)),
        of_keys: KeyedLimit::new(OF_KEY_MAX),
    });
    let of_tasks = tasks.clone();
    tasks.spawn_critical("agent listener", accept(listener, context, of_tasks));
    tracing::info!(%address, "listening for agents");
    Ok(address)
}

async fn accept(listener: TcpListener, context: Arc<ListenerContext>, tasks: Tasks) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of descriptors: existing sessions live on.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        backoff.reset();
        if !context.upstreams.is_connected() {
            tracing::debug!(%peer, "not connected to the server: a connection is closed");
            continue;
        }
        let silent = context.greetings.enter(peer.ip());
        let (context, of_tasks) = (context.clone(), tasks.clone());
        tasks.spawn("agent greeting", async move {
            if !silent.speaks(&stream).await {
                return tracing::debug!(%peer, "a peer said nothing");
            }
            let Some(admitted) = context.greetings.admit(peer.ip()).await else {
                return tracing::debug!(%peer, "too many handshakes: a new connection is closed");
            };
            let greeting = Box::pin(greet(stream, peer, context.clone(), of_tasks));
            tokio::select! {
                ended = tokio::time::timeout(GREETING_LIMIT, greeting) => if ended.is_err() {
                    tracing::debug!(%peer, "a peer did not finish its greeting in time");
                },
                () = admitted.greeting.gives_way.cancelled() => {
                    tracing::debug!(%peer, "a peer that stalled in its greeting gives way");
                }
            }
        });
    }
}

/// What a peer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Session,
    Enrolment,
}

/// Exactly one protocol: the server must not choose another one behind our back.
fn wanted(names: &[Vec<u8>]) -> Option<Wanted> {
    let [name] = names else { return None };
    match name.as_slice() {
        ALPN_ENROL => Some(Wanted::Enrolment),
        ALPN_SESSION => Some(Wanted::Session),
        _ => None,
    }
}

/// Dispatches by what the peer asks for; what takes longer than a greeting gets a task of its own.
async fn greet(stream: TcpStream, peer: SocketAddr, context: Arc<ListenerContext>, tasks: Tasks) {
    let _ = prepare_link(&stream);
    // While the path to the server is blocked, an agent is answered unasked: only this shows that its host is gone.
    let _ = end_unacknowledged(&stream, passenger::WRITE_LIMIT);
    let (names, stream) = match peek_alpn(stream).await {
        Ok(peeked) => peeked,
        Err(error) => return tracing::debug!(%peer, %error, "a peer does not speak TLS"),
    };
    match wanted(&names) {
        Some(Wanted::Session) => {}
        Some(Wanted::Enrolment) => {
            return tasks.spawn("enrolment", async move {
                if let Err(error) = tokio::time::timeout(ENROLMENT_LIMIT, Box::pin(enrol(&context, peer, stream)))
                    .await
                    .unwrap_or_else(|late| Err(late.into()))
                {
                    tracing::debug!(%peer, %error, "an enrolment did not get through");
                }
            });
        }
        None => return tracing::debug!(%peer, "a peer offers no supported protocol, or several"),
    }
    let tls = match TlsAcceptor::from(context.identity.to_agents()).accept(stream).await {
        Ok(tls) => tls,
        Err(error) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
    };
    context.greetings.know([peer.ip()]);
    let Ok(seat) = context.agents.clone().try_acquire_owned() else {
        return tracing::warn!(%peer, "too many agents, rejecting connection");
    };
    tasks.spawn("agent", async move {
        let _seat = seat;
        Box::pin(carry(tls, peer, &context)).await;
    });
}

async fn carry(tls: TlsStream<PrefixedStream<TcpStream>>, peer: SocketAddr, context: &ListenerContext) {
    let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
    let Some(certificate) = chain.first() else { return };
    let key = match proctor_pki::key_fingerprint_der(certificate) {
        Ok(key) => key,
        Err(error) => return tracing::debug!(%peer, %error, "the certificate of an agent cannot be read"),
    };
    let certificate_der = certificate.as_ref().to_vec();
    let Some(_of_key) = context.of_keys.take(key.clone()) else {
        return tracing::debug!(%peer, key, "an agent has too many connections: one is closed");
    };
    let welcome_by = Instant::now() + WELCOME_LIMIT;
    let passage = match context.boarding.board(&context.upstreams, &key, certificate_der).await {
        Ok(passage) => passage,
        Err(NotBoarded::Busy(retry_after)) => {
            tracing::debug!(%peer, ?retry_after, "too many greetings: an agent is told to come back");
            return Box::pin(tell_busy(tls, retry_after)).await;
        }
        Err(NotBoarded::NoRoom) => {
            return tracing::debug!(%peer, "no connection to the server has room: an agent is turned away");
        }
    };
    let ended = passenger::carry(tls, passage.stream, &passage.heard, passage.greeting, welcome_by).await;
    tracing::debug!(%peer, error = ended.err().map(|error| error.to_string()), "agent disconnected");
}

/// Copies bytes both ways between the peer and the server.
async fn enrol(context: &ListenerContext, peer: SocketAddr, stream: PrefixedStream<TcpStream>) -> io::Result<()> {
    let slot = context.enrolments.begin(peer.ip()).ok_or_else(|| io::Error::other("too many enrolments from there"))?;
    tokio::select! {
        passed = pass_to_server(context, stream) => passed,
        () = slot.gives_way.cancelled() => Err(io::Error::other("it gives way to a newer one")),
    }
}

async fn pass_to_server(context: &ListenerContext, stream: PrefixedStream<TcpStream>) -> io::Result<()> {
    let (first, peer) = stream.into_parts();
    let mut server = None;
    for address in &context.upstreams.addresses {
        let connecting = tokio::time::timeout(SERVER_CONNECT_LIMIT, TcpStream::connect(address));
        match connecting.await.unwrap_or_else(|late| Err(late.into())) {
            Ok(connected) => {
                server = Some(connected);
                break;
            }
            Err(error) => tracing::debug!(address, %error, "the server cannot be reached for an enrolment"),
        }
    }
    let mut server = server.ok_or(io::ErrorKind::NotConnected)?;
    server.write_all(&first).await?;
    pass_through(peer, server).await
}

/// Until both have ended, or both are silent.
async fn pass_through<P, S>(peer: P, mut server: S) -> io::Result<()>
where
    P: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut peer = Counted::new(peer);
    let counters = peer.counters();
    tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut peer, &mut server) => copied.map(|_| ()),
        () = counters.idle(ENROLMENT_SILENCE_MAX) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody said anything")),
    }
}

#[cfg(test)]
mod tests {
    use proctor_wire::ALPN_RELAY;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn only_an_enrolment_and_nothing_beside_it_passes_through() {
        let names = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect::<Vec<_>>();

        assert_eq!(wanted(&names(&[ALPN_ENROL])), Some(Wanted::Enrolment));
        assert_eq!(wanted(&names(&[ALPN_SESSION])), Some(Wanted::Session));
        let others: [&[&[u8]]; 4] = [&[], &[ALPN_RELAY], &[ALPN_ENROL, ALPN_RELAY], &[ALPN_SESSION, ALPN_ENROL]];
        assert!(others.into_iter().all(|other| wanted(&names(other)).is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_enrolment_passes_both_ways_and_ends_when_it_is_silent() {
        let ((mut agent, peer), (mut server, near)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        let enrolment = async {
            let mut heard = [0; 3];
            for _ in 0..10 {
                agent.write_all(b"csr").await.unwrap();
                server.read_exact(&mut heard).await.unwrap();
                tokio::time::sleep(ENROLMENT_SILENCE_MAX / 2).await;
                server.write_all(b"pem").await.unwrap();
                agent.read_exact(&mut heard).await.unwrap();
                tokio::time::sleep(ENROLMENT_SILENCE_MAX / 2).await;
            }
            std::future::pending::<()>().await;
        };

        let begun = Instant::now();
        let ended = tokio::select! {
            ended = pass_through(peer, near) => ended,
            () = enrolment => unreachable!("it waits"),
        };

        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), (10 * ENROLMENT_SILENCE_MAX + ENROLMENT_SILENCE_MAX / 2).as_secs());
    }
}

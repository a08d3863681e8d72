//! How a session opens: the certificate, the hello, and the welcome.
//!
//! Promised: a peer that gets no session is told why, or when to retry; an agent behind a relay has proved its
//! presence before anything in its hello counts; an agent that sends a challenge gets everything signed.
//! Absent: turns before TLS (see `admission`), and the session itself (see `session`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, BootId, RelayId};
use proctor_pki::{HelloTerms, ReportCheck, SessionTerms, open_hello, random_bytes, signed_welcome};
use proctor_runtime::{Greeting as Slot, Tasks, chain, clock};
use proctor_store::{SessionOpening, SessionRefusal, StoreError};
use proctor_wire::{FromAgent, FromServer, ServerCodec, Streams, ends, framed};
use rustls::pki_types::CertificateDer;

use super::connection::Direct;
use super::sender::Sender;
use super::session::{Ended, Receiver, start};
use super::turns::{Kind, Origin};
use super::{Connection, Gateway, Guest, now};
use crate::control::{ConnectionInfo, ControlError, Greeting, Measured, Session};
use crate::pace::Pace;

/// For the first message of a session; the opening as a whole has its own limit.
const HELLO_LIMIT: Duration = Duration::from_secs(16);
const NONCE_BYTES: usize = 32;

/// Who presented a certificate.
struct Presented {
    agent: AgentId,
    key_fingerprint: String,
    /// Unix seconds.
    expires_at: Option<i64>,
    certificate: CertificateDer<'static>,
}

impl Presented {
    fn of(tls: &Direct) -> proctor_pki::Result<Option<Self>> {
        let Some(chain) = tls.get_ref().1.peer_certificates() else { return Ok(None) };
        let Some(first) = chain.first() else { return Ok(None) };
        Self::of_certificate(proctor_pki::agent_of(chain)?, first.clone().into_owned()).map(Some)
    }

    /// Of a certificate that was verified.
    fn of_certificate(agent: AgentId, certificate: CertificateDer<'static>) -> proctor_pki::Result<Self> {
        let key_fingerprint = proctor_pki::key_fingerprint_der(&certificate)?;
        let expires_at = proctor_pki::expires_at_der(&certificate).ok().map(|at| at.as_second());
        Ok(Self { agent, key_fingerprint, expires_at, certificate })
    }
}

/// The relay that an agent comes through.
pub(super) struct Via {
    pub(super) relay: RelayId,
    pub(super) cloud: u32,
    pub(super) streams: Streams,
}

/// An agent that has presented its certificate, and has sent nothing yet.
struct Arrival {
    connection: Connection,
    presented: Presented,
    peer: SocketAddr,
    via: Option<Via>,
}

/// A session that the store has opened, and the connection that it is for.
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    pub(super) verified: Option<Verified>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) peer: SocketAddr,
    pub(super) via: Option<Via>,
}

/// Authenticates it; a peer that gets no session is told why. `slot` is its permit among those being opened.
async fn greeted(arrival: Arrival, slot: Option<&Slot>, gateway: &Gateway) -> Option<Opened> {
    let Arrival { connection, presented, peer, via } = arrival;
    let agent = presented.agent.clone();
    let counters = connection.counters();
    // Whoever has a certificate that a relay has seen could begin a frame here: a large one only with a proof.
    let codec = if via.is_some() { ServerCodec::enrolment() } else { ServerCodec::new() };
    let (mut sender, mut receiver) = ends(framed(connection, codec), counters);
    if via.is_some() {
        sender.wait_while_heard(&receiver);
    }
    let mut sender = Sender::new(sender);
    let ended = match hello(&mut sender, &mut receiver, presented, via.as_ref(), slot, gateway).await {
        Ok((session, verified)) => return Some(Opened { session, verified, sender, receiver, peer, via }),
        Err(ended) => ended,
    };
    if matches!(ended, Ended::Cloned) {
        gateway.control.refused_clone(&agent, peer).await;
    } else if matches!(ended, Ended::Refused(SessionRefusal::StaleState { .. })) {
        gateway.control.refused_old_copy(&agent, peer).await;
    }
    if let Some(last_word) = last_word(ended, &agent, peer, via.as_ref(), gateway) {
        Box::pin(sender.end_with(last_word, receiver)).await;
    }
    None
}

/// What an agent that gets no session is told, if anything.
fn last_word(
    ended: Ended,
    agent: &AgentId,
    peer: SocketAddr,
    via: Option<&Via>,
    gateway: &Gateway,
) -> Option<FromServer> {
    match ended {
        Ended::ForgedHello(untrusted) => {
            if let (Some(via), Some(unlogged)) = (via, gateway.refused.turn(Instant::now())) {
                tracing::warn!(%peer, %agent, relay = %via.relay, %untrusted, unlogged, "relayed hello has a bad signature");
            }
            None
        }
        error @ (Ended::Cloned
        | Ended::Refused(_)
        | Ended::Unchallenged
        | Ended::Expired
        | Ended::OtherAuthority
        | Ended::UnsignedThroughRelay) => {
            if let Some(unlogged) = gateway.refused.turn(Instant::now()) {
                tracing::warn!(%peer, %agent, reason = %error, unlogged, "session refused");
            }
            let retry = matches!(error, Ended::Cloned | Ended::Refused(SessionRefusal::AwaitsApproval { .. }));
            Some(FromServer::Refused { reason: error.to_string(), retry })
        }
        Ended::Control(error) => {
            gateway.unopened.log_session(peer, agent, &error);
            let reason = format!("it cannot open a session now: {}", for_agents(&error));
            Some(FromServer::Refused { reason, retry: true })
        }
        Ended::Busy(retry_after) => {
            gateway.control.metrics().admission("busy");
            gateway.control.put_off(agent, retry_after);
            Some(FromServer::Busy { retry_after })
        }
        error @ (Ended::Closed
        | Ended::Left
        | Ended::Silent
        | Ended::Unproved
        | Ended::Stuck
        | Ended::Fenced
        | Ended::Dismissed(_)
        | Ended::RenewKey
        | Ended::NotSigned(_)
        | Ended::Forged(_)
        | Ended::Link(_)
        | Ended::Pki(_)
        | Ended::Panicked) => {
            tracing::debug!(%peer, %agent, %error, "a session did not open");
            None
        }
    }
}

/// Of an agent that is connected directly: its session has the peer's turn until it is welcomed.
pub(super) async fn open_direct(tls: Direct, guest: Guest, gateway: Arc<Gateway>, tasks: Tasks) {
    let Guest { peer, greeting, mut turn } = guest;
    let presented = match Presented::of(&tls) {
        Ok(Some(presented)) => presented,
        Ok(None) => return tracing::debug!(%peer, "a session needs a certificate"),
        Err(error) => return tracing::warn!(%peer, %error, "client certificate names no agent"),
    };
    let arrival = Arrival { connection: Connection::Direct(Box::new(tls)), presented, peer, via: None };
    let opened = turn.run(Box::pin(greeted(arrival, Some(&greeting), &gateway))).await;
    if let Some(opened) = opened {
        start(opened, turn, gateway, tasks);
    }
}

/// An agent brought by a relay, of which nothing is verified.
pub(super) struct RelayedHello {
    pub(super) connection: Connection,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) peer: SocketAddr,
    pub(super) via: Via,
}

/// Of an agent behind a relay: nothing is verified before its turn, which it has until it is welcomed.
pub(super) async fn open_relayed(brought: RelayedHello, gateway: Arc<Gateway>, tasks: Tasks) {
    let Some(mut turn) = gateway.admission.turn(Origin::Relayed(brought.via.relay.clone())).await else {
        gateway.control.metrics().admission("late");
        return put_off(brought, &gateway).await;
    };
    gateway.control.metrics().admission("admitted");
    let opened = turn.run(Box::pin(greeted_behind_relay(brought, &gateway))).await;
    if let Some(opened) = opened {
        turn.came_through();
        start(opened, turn, gateway, tasks);
    }
}

async fn greeted_behind_relay(brought: RelayedHello, gateway: &Gateway) -> Option<Opened> {
    let RelayedHello { connection, certificate, peer, via } = brought;
    let relay = &via.relay;
    let agent = match gateway.control.believed().agent_certificates.verify(&certificate, now()) {
        Ok(agent) => agent,
        Err(error) => {
            tracing::debug!(%relay, error = %chain(&error), "a relay showed a certificate that is no agent's");
            return None;
        }
    };
    let presented = match Presented::of_certificate(agent, certificate) {
        Ok(presented) => presented,
        Err(error) => {
            tracing::debug!(%relay, %error, "an agent's certificate cannot be read");
            return None;
        }
    };
    let arrival = Arrival { connection, presented, peer, via: Some(via) };
    Box::pin(greeted(arrival, None, gateway)).await
}

/// Its turn did not come. Unlike before TLS there is somebody to tell: the relay has proved itself, and could keep the agent
/// away by itself.
async fn put_off(RelayedHello { connection, via, .. }: RelayedHello, gateway: &Gateway) {
    let stay_away_max = Pace::of_fleet(gateway.control.agents_expected()).stay_away_max();
    let interval = gateway.admission.interval(Kind::Relayed);
    let retry_after = gateway.busy.put_off(Instant::now(), interval, stay_away_max);
    gateway.control.put_off_unknown(via.cloud, retry_after);
    tell_busy(connection, retry_after).await;
}

async fn tell_busy(connection: Connection, retry_after: Duration) {
    let counters = connection.counters();
    let (sender, receiver) = ends(framed(connection, ServerCodec::enrolment()), counters);
    Box::pin(Sender::new(sender).end_with(FromServer::Busy { retry_after }, receiver)).await;
}

/// What the operators who read an agent's log can use; the rest is in the server's log.
fn for_agents(error: &ControlError) -> String {
    if let ControlError::Store(full @ StoreError::Full { .. }) = error {
        return format!("{full} (the server's disk is full)");
    }
    "its log says why".to_owned()
}

/// What binds the session of an agent that verifies.
pub(super) struct Verified {
    challenge: Vec<u8>,
    certificate: CertificateDer<'static>,
    boot: BootId,
    nonce: Vec<u8>,
    seen_generation: u64,
    seen_epoch: Option<u64>,
}

/// The session, and whether the agent verifies.
async fn hello(
    sender: &mut Sender,
    receiver: &mut Receiver,
    presented: Presented,
    via: Option<&Via>,
    slot: Option<&Slot>,
    gateway: &Gateway,
) -> Result<(Arc<Session>, Option<Verified>), Ended> {
    let control = &gateway.control;
    let Presented { agent, key_fingerprint, expires_at, certificate } = presented;
    let hello = match via {
        None => receiver.next(HELLO_LIMIT, HELLO_LIMIT, |_| true).await?,
        Some(via) => proven_hello(sender, receiver, &certificate, via).await?,
    };
    let FromAgent::Hello {
        agent: said,
        boot,
        facts,
        seen_generation,
        nonce,
        time_ms,
        seen_epoch,
        answers_usage,
        answers_logs,
        challenge,
        upgrades,
        state,
    } = hello
    else {
        return Err(Ended::Closed);
    };
    if said != agent {
        return Err(Ended::Closed);
    }
    if expires_at.is_none_or(|expires_at| expires_at <= now().as_second()) {
        return Err(Ended::Expired);
    }
    if gateway.control.believed().authorities.issuer_of(&certificate).is_none() {
        return Err(Ended::OtherAuthority);
    }
    if challenge.is_none() && via.is_some() {
        return Err(Ended::UnsignedThroughRelay);
    }
    if challenge.is_none() && gateway.policy.signed_reports {
        return Err(Ended::Unchallenged);
    }
    let verified = challenge.map(|challenge| Verified {
        challenge,
        certificate,
        boot: boot.clone(),
        nonce: nonce.clone(),
        seen_generation,
        seen_epoch,
    });
    let clock_ahead_ms = time_ms.map(|theirs| theirs.saturating_sub(clock::unix_millis()));
    let relay_cloud = via.map(|via| via.cloud);
    let opening = SessionOpening { agent, key_fingerprint, seen_epoch, facts, relay_cloud };
    let greeting = Greeting {
        opening,
        boot,
        run: nonce,
        seen_generation,
        answers_usage,
        answers_logs,
        takes_upgrades: upgrades,
        state,
    };
    if control.clone_of(&greeting).is_some() {
        return Err(Ended::Cloned);
    }
    let stay_away_max = Pace::of_fleet(control.agents_expected()).stay_away_max();
    let opening = gateway.busy.open(Instant::now(), stay_away_max).map_err(Ended::Busy)?;
    slot.inspect(|slot| slot.enters_store());
    let opened = control.open_session_with(greeting, opening).await;
    slot.inspect(|slot| slot.leaves_store());
    let session = opened??;
    session.set_connection_info(ConnectionInfo { clock_ahead_ms, certificate_expires_at: expires_at });
    if let Some(ahead_ms) = clock_ahead_ms {
        control.saw_clock(&session, ahead_ms, Measured::AtHello).await;
    }
    Ok((session, verified))
}

/// The hello of an agent behind a relay: signed by its key, for a fresh nonce.
async fn proven_hello(
    sender: &mut Sender,
    receiver: &mut Receiver,
    certificate: &CertificateDer<'_>,
    via: &Via,
) -> Result<FromAgent, Ended> {
    let nonce = random_bytes::<NONCE_BYTES>();
    sender.send_plain(FromServer::Challenge { nonce: nonce.to_vec() }).await?;
    let FromAgent::Signed(signed) = receiver.next(HELLO_LIMIT, HELLO_LIMIT, |_| true).await? else {
        return Err(Ended::UnsignedThroughRelay);
    };
    let hello = open_hello(certificate, &via.relay, &nonce, &signed, &mut None).map_err(Ended::ForgedHello)?;
    receiver.allow_session_frames();
    Ok(hello)
}

/// An agent that sent a challenge is given everything signed, and may be asked to sign in turn: then it returns what
/// checks that.
pub(super) async fn welcome(
    gateway: &Gateway,
    session: &Session,
    sender: &mut Sender,
    pace: Pace,
    verified: Option<Verified>,
) -> Result<Option<Box<ReportCheck>>, Ended> {
    let is_relayed = session.relay_cloud().is_some();
    let (epoch, server_time_ms) = (session.epoch(), clock::unix_millis());
    let (beat_interval, state_known) = (pace.beat, session.is_state_known());
    let mut welcome = FromServer::Welcome { epoch, beat_interval, server_time_ms, proof: None, state_known };
    let mut reports = None;
    if let Some(Verified { challenge, certificate, boot, nonce, seen_generation, seen_epoch }) = &verified {
        let terms = SessionTerms {
            agent: session.agent(),
            challenge,
            epoch,
            control_epoch: gateway.signing.control_epoch,
            beat_interval_ms: u64::try_from(pace.beat.as_millis()).unwrap_or(u64::MAX),
            server_time_ms,
            signed_reports: gateway.policy.signed_reports || is_relayed,
            state_known,
            hello: HelloTerms { boot, nonce, seen_generation: *seen_generation, seen_epoch: *seen_epoch },
        };
        let (proof, seal) = signed_welcome(&gateway.signing.signer(), &terms)?;
        welcome = FromServer::Welcome { epoch, beat_interval, server_time_ms, proof: Some(proof), state_known };
        if terms.signed_reports {
            reports = Some(Box::new(ReportCheck::new(&terms, certificate)?));
        }
        sender.sign(gateway.signing.clone(), seal);
    }
    sender.send_plain(welcome).await?;
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use proctor_wire::{AgentCodec, Budgeted, Counted, FrameBudget, RelayFrame};

    use super::*;

    #[tokio::test]
    async fn an_agent_behind_a_relay_is_told_when_to_come_back_though_it_has_said_nothing() {
        let (relay, server) = (Streams::new(1), Streams::new(1));
        let agent = relay.open(Vec::new()).unwrap();
        let stream = server.accept(1).unwrap().unwrap();
        let connection = Connection::Relayed(Counted::new(Budgeted::new(stream, FrameBudget::new(1 << 20))));
        let retry_after = Duration::from_secs(7);

        tell_busy(connection, retry_after).await;

        let frames: Vec<_> = std::iter::from_fn(|| server.poll_frame()).collect();
        assert!(matches!(frames[..], [RelayFrame::Data { .. }, RelayFrame::Close { .. }]), "{frames:?}");
        frames.into_iter().for_each(|frame| assert_eq!(relay.handle(frame).unwrap(), None));
        let mut agent = framed(agent, AgentCodec::new());
        assert_eq!(agent.next().await.unwrap().unwrap(), FromServer::Busy { retry_after });
        assert!(agent.next().await.is_none());
    }
}

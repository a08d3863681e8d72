//! One session of one agent: what it reports goes to control, what control has for it goes out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use proctor_model::{AgentId, BootId, Event};
use proctor_pki::{HelloTerms, ReportCheck, SessionTerms, Untrusted, signed_welcome};
use proctor_runtime::{Tasks, clock};
use proctor_store::{Assignment, Assignments, SessionOpening, SessionRefusal, StoreError};
use proctor_wire::{
    Assign, FRAME_BYTES_MAX, FromAgent, FromServer, ITEMS_MAX, Incoming, Lost, ServerCodec, Skipped, WireError, ends,
    framed, spec_bytes,
};
use rustls::pki_types::CertificateDer;

use super::enrol::CERTIFICATE_LIFETIME;
use super::sender::Sender;
use super::{Connection, Gateway, Guest, Turn, now};
use crate::control::{ConnectionInfo, Control, ControlError, Greeting, Question, Session};
use crate::handshakes;
use crate::pace::Pace;

/// For the first word of a session; the greeting as a whole has a limit of its own.
const HELLO_LIMIT: Duration = Duration::from_secs(16);
/// For the last word of a server that ends.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);
/// Operations sent before the socket is asked again whether it can take more.
const DELIVERIES_MAX: usize = 256;
const ASSIGNMENTS_MAX: usize = 256;
/// Beats and renewals to be answered; what does not fit is asked again.
const REPLIES_MAX: usize = 4;
/// Events that wait in memory for a store that is full; with more, the session ends and the agent
/// keeps them.
const UNSTORED_MAX: usize = 512;

#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the agent closed the connection")]
    Closed,
    #[error("the agent was silent for too long")]
    Silent,
    #[error("the agent does not read")]
    Stuck,
    #[error("a newer session took over")]
    Fenced,
    #[error("{0}")]
    Dismissed(String),
    #[error("an agent with the same identity is connected: is this a copy of its state directory?")]
    Cloned,
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    #[error(
        "this server takes signed reports alone (--signed-reports), and the agent's greeting has no challenge: upgrade the \
         agent; if it is new enough, something between it and the server has removed the challenge"
    )]
    Unchallenged,
    /// TLS refuses it in a full handshake; a ticket says only that it was good once.
    #[error("the certificate that the TLS ticket is for has expired: check the clocks of both")]
    Expired,
    #[error("too many sessions open at the same time")]
    Busy(Duration),
    #[error("the agent asked to renew its certificate with another key")]
    RenewKey,
    #[error("cannot sign: {0}")]
    NotSigned(String),
    #[error("a report was not by the agent: {0}")]
    Forged(Untrusted),
    #[error("the link broke")]
    Link(#[from] WireError),
    #[error("control refused")]
    Control(#[from] ControlError),
    #[error("cannot issue or sign something")]
    Pki(#[from] proctor_pki::PkiError),
    /// The agent connects again and gets everything again; its targets must not wait for the old session.
    #[error("the session panicked")]
    Panicked,
}

impl From<Lost> for Ended {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => Self::Closed,
            Lost::Silent => Self::Silent,
            Lost::Stuck => Self::Stuck,
            Lost::Broken(error) => Self::Link(error),
        }
    }
}

type Receiver = Incoming<Connection, FromAgent, FromServer>;

/// Who presented a certificate.
struct Presented {
    agent: AgentId,
    key_fingerprint: String,
    /// Unix seconds.
    expires_at: Option<i64>,
    certificate: CertificateDer<'static>,
}

impl Presented {
    fn of(tls: &Connection) -> proctor_pki::Result<Option<Self>> {
        let Some(chain) = tls.get_ref().1.peer_certificates() else { return Ok(None) };
        let Some(first) = chain.first() else { return Ok(None) };
        Ok(Some(Self {
            agent: proctor_pki::agent_of(chain)?,
            key_fingerprint: proctor_pki::key_fingerprint_der(first)?,
            expires_at: proctor_pki::expires_at_der(first).ok().map(|at| at.as_second()),
            certificate: first.clone().into_owned(),
        }))
    }
}

/// A session that the store has opened, and the connection that it is for.
struct Opened {
    session: Arc<Session>,
    verified: Option<Verified>,
    sender: Sender,
    receiver: Receiver,
}

/// Checks who it is; who gets no session is told why.
async fn greeted(tls: Connection, peer: SocketAddr, slot: &handshakes::Greeting, gateway: &Gateway) -> Option<Opened> {
    let presented = match Presented::of(&tls) {
        Ok(Some(presented)) => presented,
        Ok(None) => {
            tracing::debug!(%peer, "a session needs a certificate");
            return None;
        }
        Err(error) => {
            tracing::warn!(%peer, %error, "a certificate names no agent");
            return None;
        }
    };
    let agent = presented.agent.clone();
    let counters = tls.get_ref().0.counters();
    let (sender, mut receiver) = ends(framed(tls, ServerCodec::new()), counters);
    let mut sender = Sender::new(sender);
    let answer = hello(&mut receiver, presented, slot, gateway).await;
    match answer {
        Ok((session, verified)) => return Some(Opened { session, verified, sender, receiver }),
        Err(error @ (Ended::Cloned | Ended::Refused(_) | Ended::Unchallenged | Ended::Expired)) => {
            if let Some(unlogged) = gateway.refused.turn(Instant::now()) {
                tracing::warn!(%peer, %agent, reason = %error, unlogged, "session refused");
            }
            let retry = matches!(error, Ended::Cloned | Ended::Refused(SessionRefusal::AwaitsApproval { .. }));
            let _ = sender.send_plain(FromServer::Refused { reason: error.to_string(), retry }).await;
        }
        Err(Ended::Control(error)) => {
            gateway.unopened.log_session(peer, &agent, &error);
            let reason = format!("it cannot open a session now: {}", for_agents(&error));
            let _ = sender.send_plain(FromServer::Refused { reason, retry: true }).await;
        }
        Err(Ended::Busy(retry_after)) => {
            gateway.control.metrics().admission("busy");
            let _ = sender.send_plain(FromServer::Busy { retry_after }).await;
        }
        Err(error) => tracing::debug!(%peer, %agent, %error, "a session did not open"),
    }
    None
}

/// Checks who it is and starts the session's task, which has the peer's turn until it is welcomed.
pub(super) async fn open(tls: Connection, guest: Guest, gateway: Arc<Gateway>, tasks: Tasks) {
    let Guest { peer, greeting, mut turn } = guest;
    let opened = turn.run(Box::pin(greeted(tls, peer, &greeting, &gateway))).await;
    // No await from here to the spawn: a greeting that is cancelled in between would leave a session that nobody ends.
    let Some(Opened { session, verified, mut sender, receiver }) = opened else { return };
    let agent = session.agent().clone();
    gateway.greetings.know([peer.ip()]);
    if let Some(unlogged) = gateway.sessions.turn(&agent, Instant::now()) {
        tracing::info!(%peer, %agent, epoch = session.epoch(), unlogged, "an agent is connected");
    }
    let shutdown = tasks.shutdown();
    tasks.spawn_to_end("link session", async move {
        let is_verified = verified.is_some();
        let carried = Box::pin(carry(&gateway, &session, &mut sender, receiver, verified, turn));
        let guarded = std::panic::AssertUnwindSafe(carried).catch_unwind();
        let ended = shutdown.run_until_cancelled(guarded).await;
        let ended = ended.map(|ended| ended.unwrap_or(Err(Ended::Panicked)));
        let control = &gateway.control;
        let Some(Err(ended)) = ended else {
            // It is the server that is gone, not the agent.
            let (sessions, interval) = (control.session_count(), gateway.admission.interval());
            let retry_after = gateway.busy.after_restart(sessions, interval, control.return_grace());
            let goodbye = Box::pin(sender.send_plain(FromServer::Busy { retry_after }));
            let _ = tokio::time::timeout(GOODBYE_LIMIT, goodbye).await;
            return;
        };
        if let Some(unlogged) = gateway.sessions.turn(session.agent(), Instant::now()) {
            tracing::info!(agent = %session.agent(), epoch = session.epoch(), why = %ended, unlogged, "an agent is gone");
        }
        if is_verified && !session.is_settled() && !matches!(ended, Ended::Fenced | Ended::Dismissed(_)) {
            control.metrics().session("unsettled");
            if let Some(unlogged) = gateway.unsettled.turn(Instant::now()) {
                tracing::warn!(%peer, agent = %session.agent(), why = %ended, unlogged, "an agent left before it had recorded its session: its log says whether it believes this server");
            }
        }
        control.close_session(&session).await;
        if let Ended::Dismissed(reason) = ended {
            let _ = sender.send_plain(FromServer::Refused { reason, retry: false }).await;
        }
    });
}

/// What the people who read the log of an agent can use; the rest is in the log of the server.
fn for_agents(error: &ControlError) -> String {
    if let ControlError::Store(full @ StoreError::Full { .. }) = error {
        return format!("{full} (the server's disk is full)");
    }
    "its log says why".to_owned()
}

/// What binds the session of an agent that verifies.
struct Verified {
    challenge: Vec<u8>,
    certificate: CertificateDer<'static>,
    boot: BootId,
    nonce: Vec<u8>,
    seen_generation: u64,
    seen_epoch: Option<u64>,
}

/// The session, and whether the agent verifies.
async fn hello(
    receiver: &mut Receiver,
    presented: Presented,
    slot: &handshakes::Greeting,
    gateway: &Gateway,
) -> Result<(Arc<Session>, Option<Verified>), Ended> {
    let control = &gateway.control;
    let Presented { agent, key_fingerprint, expires_at, certificate } = presented;
    let hello = receiver.next(HELLO_LIMIT, HELLO_LIMIT, |_| true).await?;
    let FromAgent::Hello {
        agent: said,
        boot,
        facts,
        seen_generation,
        nonce,
        time_ms,
        seen_epoch,
        answers_usage,
        challenge,
        upgrades,
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
    let opening = SessionOpening { agent, key_fingerprint, seen_epoch, facts };
    let greeting = Greeting { opening, boot, run: nonce, seen_generation, answers_usage, takes_upgrades: upgrades };
    if control.clone_of(&greeting).is_some() {
        return Err(Ended::Cloned);
    }
    let stay_away_max = Pace::of_fleet(control.agents_expected()).stay_away_max();
    let opening = gateway.busy.open(Instant::now(), stay_away_max).map_err(Ended::Busy)?;
    slot.enters_store();
    let opened = control.open_session_with(greeting, opening).await;
    slot.leaves_store();
    let session = opened??;
    session.set_connection_info(ConnectionInfo { clock_ahead_ms, certificate_expires_at: expires_at });
    Ok((session, verified))
}

/// An agent that sent a challenge is given everything signed, and may be asked to sign in turn: then it returns what
/// checks that.
async fn welcome(
    gateway: &Gateway,
    session: &Session,
    sender: &mut Sender,
    pace: Pace,
    verified: Option<Verified>,
) -> Result<Option<Box<ReportCheck>>, Ended> {
    let (epoch, server_time_ms) = (session.epoch(), clock::unix_millis());
    let mut welcome = FromServer::Welcome { epoch, beat_interval: pace.beat, server_time_ms, proof: None };
    let mut reports = None;
    if let Some(Verified { challenge, certificate, boot, nonce, seen_generation, seen_epoch }) = &verified {
        let terms = SessionTerms {
            agent: session.agent(),
            challenge,
            epoch,
            control_epoch: gateway.signing.control_epoch,
            beat_interval_ms: u64::try_from(pace.beat.as_millis()).unwrap_or(u64::MAX),
            server_time_ms,
            signed_reports: gateway.policy.signed_reports,
            hello: HelloTerms { boot, nonce, seen_generation: *seen_generation, seen_epoch: *seen_epoch },
        };
        let (proof, seal) = signed_welcome(&gateway.signing.signer(), &terms)?;
        welcome = FromServer::Welcome { epoch, beat_interval: pace.beat, server_time_ms, proof: Some(proof) };
        if terms.signed_reports {
            reports = Some(Box::new(ReportCheck::new(&terms, certificate)?));
        }
        sender.sign(gateway.signing.clone(), seal);
    }
    sender.send_plain(welcome).await?;
    Ok(reports)
}

async fn carry(
    gateway: &Gateway,
    session: &Session,
    sender: &mut Sender,
    mut receiver: Receiver,
    verified: Option<Verified>,
    mut turn: Turn,
) -> Result<(), Ended> {
    let pace = Pace::of_fleet(gateway.control.agents_expected());
    let reports = turn.run(Box::pin(welcome(gateway, session, sender, pace, verified))).await?;
    drop(turn);
    let (replies, to_reply) = tokio::sync::mpsc::channel(REPLIES_MAX);
    let mut reader = Reader { gateway, session, replies, reports, unstored: Vec::new() };
    tokio::select! {
        ended = listen(&mut reader, pace, &mut receiver) => ended,
        ended = talk(&gateway.control, session, sender, to_reply) => ended,
        () = session.fenced() => Err(session.dismissal().map_or(Ended::Fenced, Ended::Dismissed)),
    }
}

/// From the agent to control.
struct Reader<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    replies: tokio::sync::mpsc::Sender<FromServer>,
    /// Of a session whose reports are signed.
    reports: Option<Box<ReportCheck>>,
    unstored: Vec<Event>,
}

async fn listen(reader: &mut Reader<'_>, pace: Pace, receiver: &mut Receiver) -> Result<(), Ended> {
    loop {
        let meanwhile = |moved| hear_part(reader.session, moved, &reader.replies);
        let message = receiver.next(pace.silence_max(), pace.in_frame(), meanwhile).await?;
        reader.session.hear();
        reader.tell_skipped(receiver.take_skipped());
        match (message, reader.reports.is_some()) {
            (FromAgent::Signed(signed), true) => {
                let mut skipped = None;
                let check = reader.reports.as_mut().expect("it was there just now");
                let messages = check.open(&signed, &mut skipped).map_err(Ended::Forged)?;
                reader.tell_skipped(skipped);
                for message in messages {
                    reader.hear(message).await?;
                }
            }
            // A beat says nothing that a carrier could not say.
            (message @ (FromAgent::Beat | FromAgent::Unknown), _) | (message, false) => reader.hear(message).await?,
            (_, true) => return Err(Ended::Forged(Untrusted::Unsigned)),
        }
    }
}

impl Reader<'_> {
    fn tell_skipped(&self, skipped: Option<Skipped>) {
        if let Some(Skipped { what, count, first }) = skipped
            && let Some(unlogged) = self.gateway.unkept.turn(Instant::now())
        {
            tracing::warn!(agent = %self.session.agent(), what, count, first, unlogged, "skipped items of a message");
        }
    }

    async fn hear(&mut self, message: FromAgent) -> Result<(), Ended> {
        let Self { gateway, session, replies, unstored, .. } = self;
        let control = &gateway.control;
        match message {
            FromAgent::Outcome { operation, outcome } => control.arrived(session, operation, outcome).await?,
            FromAgent::Observed { observations } => {
                // The next report brings newer ones; a full store must not end the session.
                if let Err(error) = control.observed(session, observations).await
                    && let Some(unlogged) = gateway.unkept.turn(Instant::now())
                {
                    tracing::warn!(agent = %session.agent(), %error, unlogged, "observations were not kept");
                }
            }
            FromAgent::Events { events } => {
                unstored.extend(events);
                store_events(gateway, session, unstored).await?;
            }
            FromAgent::Renew { csr_der } => {
                let _ = replies.try_send(renewed(gateway, session, &csr_der)?);
            }
            FromAgent::Beat => {
                store_events(gateway, session, unstored).await?;
                let _ = replies.try_send(FromServer::Beat);
            }
            FromAgent::UsageHistory { request, history } => {
                if !session.answer(request, history) {
                    tracing::debug!(agent = %session.agent(), request, "nobody waits for this usage");
                }
            }
            FromAgent::FetchBuild { upgrade, offset, length } => {
                // An agent asks again for what does not come.
                if let Some(bytes) = control.build_part(session, upgrade, offset, length).await {
                    let _ = replies.try_send(FromServer::BuildPart { upgrade, offset, bytes });
                }
            }
            FromAgent::UpgradeReport { upgrade, step, reason } => {
                // The agent says it again when it is told again; a full store must not end the session.
                if let Err(error) = control.upgrade_reported(session, upgrade, step, reason).await
                    && let Some(unlogged) = gateway.unkept.turn(Instant::now())
                {
                    tracing::warn!(agent = %session.agent(), %upgrade, %error, unlogged, "an upgrade's end was not kept");
                }
            }
            FromAgent::Settled { epoch, recorded } if epoch == session.epoch() => {
                control.settled(session, recorded).await;
            }
            FromAgent::Settled { .. } | FromAgent::Seen { .. } | FromAgent::Unknown => {}
            FromAgent::Enrol { .. } | FromAgent::Hello { .. } | FromAgent::Signed(_) => return Err(Ended::Closed),
        }
        Ok(())
    }
}

/// A certificate for the key that the session has; another one would be a second identity that nobody enrolled.
fn renewed(gateway: &Gateway, session: &Session, csr_der: &[u8]) -> Result<FromServer, Ended> {
    if proctor_pki::requested_fingerprint(csr_der)? != session.key_fingerprint() {
        return Err(Ended::RenewKey);
    }
    let certificate_pem = gateway.authority.issue_agent(csr_der, session.agent(), now(), CERTIFICATE_LIFETIME)?;
    if let Ok(expires_at) = proctor_pki::expires_at(&certificate_pem) {
        session.renewed(expires_at.as_second());
    }
    Ok(FromServer::Renewed { certificate_pem })
}

/// A large frame is on its way, and the agent's beats behind it: it must hear from us all the same.
fn hear_part(session: &Session, moved: bool, replies: &tokio::sync::mpsc::Sender<FromServer>) -> bool {
    if moved {
        session.hear();
        let _ = replies.try_send(FromServer::Beat);
    }
    true
}

/// Tries with every beat what a full store did not take. Events that come later must wait for those:
/// the agent is told of the last one only, and would forget the others.
async fn store_events(gateway: &Gateway, session: &Session, unstored: &mut Vec<Event>) -> Result<(), Ended> {
    if unstored.is_empty() {
        return Ok(());
    }
    match gateway.control.events_arrived(session, unstored).await {
        Ok(()) => unstored.clear(),
        Err(error) if unstored.len() > UNSTORED_MAX => return Err(error.into()),
        Err(error) => {
            if let Some(unlogged) = gateway.unkept.turn(Instant::now()) {
                tracing::warn!(agent = %session.agent(), %error, unlogged, "events wait for the store");
            }
        }
    }
    Ok(())
}

/// From control to the agent: first what it must forget and know, then what it must do.
async fn talk(
    control: &Control,
    session: &Session,
    sender: &mut Sender,
    mut replies: tokio::sync::mpsc::Receiver<FromServer>,
) -> Result<(), Ended> {
    loop {
        for operations in session.take_acknowledged().chunks(ITEMS_MAX) {
            sender.feed(FromServer::Acknowledge { operations: operations.to_vec() }).await?;
        }
        if let Some(up_to) = session.take_events_seen() {
            sender.feed(FromServer::EventsSeen { up_to }).await?;
        }
        if session.is_settled() {
            for Question { request, key, range } in session.take_questions() {
                sender.feed(FromServer::QueryUsage { request, key, range }).await?;
            }
            if let Some(order) = control.take_upgrade(session) {
                sender.feed(FromServer::Upgrade(order)).await?;
            }
        }
        let is_more = session.is_settled() && give_work(control, session, sender).await?;
        sender.flush().await?;
        if is_more {
            continue;
        }
        tokio::select! {
            () = session.woken() => {}
            Some(message) = replies.recv() => {
                if message == FromServer::Beat {
                    sender.send_plain(message).await?;
                } else {
                    sender.send(message).await?;
                }
            }
        }
    }
}

/// What the agent must not do any more, must know and must do; returns whether there is more.
async fn give_work(control: &Control, session: &Session, sender: &mut Sender) -> Result<bool, Ended> {
    for operations in control.take_cancels(session).chunks(ITEMS_MAX) {
        sender.feed(FromServer::Cancel { operations: operations.to_vec() }).await?;
    }
    // In this order: whoever submits sets the flag before the target is there, so the spec of
    // every delivery in hand is among what is assigned now, or was before.
    let deliveries = control.take_deliveries(session, DELIVERIES_MAX);
    if session.take_reassign() {
        assign(control, session, sender).await?;
    }
    let is_more = deliveries.len() == DELIVERIES_MAX;
    for delivery in deliveries {
        // With its spec, also where that was assigned just now: an agent may have skipped the assignment because it
        // cannot read it, and begins a queued operation when others have been assigned.
        let message = FromServer::Operate {
            operation: delivery.operation,
            key: delivery.key,
            kind: delivery.kind,
            spec: delivery.spec,
            expires_in: delivery.expires_in,
        };
        sender.feed(message).await?;
    }
    Ok(is_more)
}

/// Sends what changed in the order of its generations, so that an agent that has seen one has seen
/// all before it.
async fn assign(control: &Control, session: &Session, sender: &mut Sender) -> Result<(), Ended> {
    let Assignments { processes, pools } = control.assignments(session).await?;
    let newest = processes.iter().map(|a| a.generation).chain(pools.iter().map(|p| p.generation)).max();
    let mut pools = pools.into_iter().map(|assigned| (assigned.generation, assigned.pool)).peekable();
    let mut frame = AssignFrame::default();
    for process in processes {
        let earlier: Vec<_> = std::iter::from_fn(|| pools.next_if(|(pool, _)| *pool < process.generation)).collect();
        if !earlier.is_empty() {
            frame.flush(sender).await?;
            sender.feed(FromServer::AssignPools { pools: earlier }).await?;
        }
        frame.add(process, sender).await?;
    }
    frame.flush(sender).await?;
    let rest: Vec<_> = pools.collect();
    for pools in rest.chunks(ASSIGNMENTS_MAX) {
        sender.feed(FromServer::AssignPools { pools: pools.to_vec() }).await?;
    }
    if let Some(newest) = newest {
        session.set_sent_generation(newest);
    }
    Ok(())
}

/// Assignments for one frame, bounded in number and in bytes.
#[derive(Default)]
struct AssignFrame {
    assignments: Vec<Assign>,
    bytes: usize,
}

impl AssignFrame {
    async fn add(&mut self, assignment: Assignment, sender: &mut Sender) -> Result<(), Ended> {
        let bytes = assignment.spec.as_ref().map_or(0, spec_bytes);
        if self.assignments.len() >= ASSIGNMENTS_MAX || self.bytes + bytes > FRAME_BYTES_MAX / 4 {
            self.flush(sender).await?;
        }
        self.bytes += bytes;
        self.assignments.push(Assign {
            generation: assignment.generation,
            key: assignment.key,
            spec: assignment.spec,
            managed: assignment.managed,
            registered_at: assignment.registered_at / 1000,
        });
        Ok(())
    }

    async fn flush(&mut self, sender: &mut Sender) -> Result<(), Ended> {
        let Self { assignments, .. } = std::mem::take(self);
        match assignments.is_empty() {
            true => Ok(()),
            false => Ok(sender.feed(FromServer::Assign { assignments }).await?),
        }
    }
}

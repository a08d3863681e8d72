//! One session of one agent: what it reports goes to control, what control has for it goes out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use proctor_model::Event;
use proctor_pki::{ReportCheck, Untrusted};
use proctor_runtime::Tasks;
use proctor_store::{Assignment, Assignments, SessionRefusal};
use proctor_wire::{
    Assign, FRAME_BYTES_MAX, FromAgent, FromServer, ITEMS_MAX, Incoming, Lost, Skipped, WireError, spec_bytes,
};

use super::enrol::CERTIFICATE_LIFETIME;
use super::greeting::{Opened, Verified, welcome};
use super::sender::Sender;
use super::turns::Kind;
use super::{Connection, Gateway, Turn, now};
use crate::control::{Asked, Control, ControlError, Question, Reply, Session};
use crate::pace::Pace;

/// For the last word of a server that ends.
pub(super) const GOODBYE_LIMIT: Duration = Duration::from_secs(1);
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
    #[error("the agent must sign what it says through a relay, and did not: upgrade the agent")]
    UnsignedThroughRelay,
    #[error("the hello that a relay brought is not by the agent: {0}")]
    ForgedHello(Untrusted),
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

pub(super) type Receiver = Incoming<Connection, FromAgent, FromServer>;

/// Not async: a greeting that is cancelled before its task is there would leave a session that nobody ends.
pub(super) fn start(opened: Opened, turn: Turn, gateway: Arc<Gateway>, tasks: Tasks) {
    let Opened { session, verified, mut sender, receiver, peer, via } = opened;
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
        // Control refuses what a session asks for when the server ends, perhaps before the session knows of it.
        let is_server_gone = |ended: &Ended| shutdown.is_cancelled() && !matches!(ended, Ended::Dismissed(_));
        let Some(ended) = ended.and_then(Result::err).filter(|ended| !is_server_gone(ended)) else {
            // It is the server that is gone, not the agent.
            let interval = gateway.admission.interval(if via.is_some() { Kind::Relayed } else { Kind::Direct });
            let retry_after =
                gateway.busy.after_restart(control.session_count(), interval, control.return_grace());
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
        match &via {
            // Whatever it ended with, it may be the relay's doing: one that is told to stop closes its agents' streams.
            Some(via) if !matches!(ended, Ended::Dismissed(_)) => {
                control.lose_session(&session, via.streams.is_over()).await;
            }
            Some(_) | None => control.close_session(&session).await,
        }
        if let Ended::Dismissed(reason) = ended {
            let _ = sender.send_plain(FromServer::Refused { reason, retry: false }).await;
        }
    });
}

async fn carry(
    gateway: &Gateway,
    session: &Session,
    sender: &mut Sender,
    mut receiver: Receiver,
    verified: Option<Verified>,
    mut turn: Turn,
) -> Result<(), Ended> {
    let is_relayed = session.relay_cloud().is_some();
    let pace = if is_relayed { Pace::through_relay() } else { Pace::of_fleet(gateway.control.agents_expected()) };
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
                if !session.answer(request, Reply::Usage(Arc::new(history))) {
                    tracing::debug!(agent = %session.agent(), request, "nobody waits for this usage");
                }
            }
            FromAgent::LogTail { request, tail } => {
                if !session.answer(request, Reply::Log(Arc::new(tail))) {
                    tracing::debug!(agent = %session.agent(), request, "nobody waits for this log");
                }
            }
            FromAgent::Pong { number } => session.pong(number),
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
            FromAgent::Enrol { .. } | FromAgent::EnrolRelay { .. } | FromAgent::Hello { .. } | FromAgent::Signed(_) => {
                return Err(Ended::Closed);
            }
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
            for Question { request, key, asked } in session.take_questions() {
                let question = match asked {
                    Asked::Usage(range) => FromServer::QueryUsage { request, key, range },
                    Asked::Log(query) => FromServer::QueryLog { request, key, query },
                };
                sender.feed(question).await?;
            }
            if let Some(number) = session.take_ping() {
                sender.feed(FromServer::Ping { number }).await?;
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
                    // A relay answers the heartbeats of its agents itself.
                    if session.relay_cloud().is_none() {
                        sender.send_plain(message).await?;
                    }
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

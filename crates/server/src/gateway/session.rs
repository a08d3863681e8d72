//! One session of one agent: its reports go to control, and control's messages go out (see `talk`).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::FutureExt;
use proctor_model::Event;
use proctor_pki::{ReportCheck, Untrusted};
use proctor_runtime::Tasks;
use proctor_store::SessionRefusal;
use proctor_wire::{FromAgent, FromServer, Incoming, Lost, Skipped, WireError};

use super::enrol::CERTIFICATE_LIFETIME;
use super::greeting::{Opened, Verified, Via, welcome};
use super::pacing::{Answer, Pacing};
use super::proof::Proof;
use super::renewals::RenewalPace;
use super::replies::Replies;
use super::sender::Sender;
use super::talk::talk;
use super::turns::Kind;
use super::{Connection, Gateway, Turn, now};
use crate::control::{ControlError, Reply, Session};
use crate::pace::Pace;

/// For the last message of a server that shuts down: peers that do not read must not delay a restart.
pub(super) const GOODBYE_LIMIT: Duration = Duration::from_secs(1);
/// Events that wait in memory for a store that is full; with more, the session ends and the agent
/// keeps them.
const UNSTORED_MAX: usize = 512;

#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the agent closed the connection")]
    Closed,
    #[error("the agent shut down cleanly")]
    Left,
    #[error("the agent was silent for too long")]
    Silent,
    #[error("the agent has answered no ping for too long, although its relay reports it as connected")]
    Unproved,
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
    /// TLS rejects it in a full handshake; a ticket only says that it was valid once.
    #[error("the certificate that the TLS ticket is for has expired: check the clocks of both")]
    Expired,
    /// As [`Self::Expired`].
    #[error(
        "the agent's certificate is of an authority that this control plane has given up: remove identity/certificate.pem \
         and identity/authority.pem from its state directory and start it with a new join token"
    )]
    OtherAuthority,
    #[error("too many sessions open at the same time")]
    Busy(Duration),
    #[error("the agent must sign what it says through a relay, and did not: upgrade the agent")]
    UnsignedThroughRelay,
    #[error("the relayed hello is not signed by the agent: {0}")]
    ForgedHello(Untrusted),
    #[error("the agent asked to renew its certificate with another key")]
    RenewKey,
    #[error("cannot sign: {0}")]
    NotSigned(String),
    #[error("report signature is invalid: {0}")]
    Forged(Untrusted),
    #[error("the link broke")]
    Link(#[from] WireError),
    #[error("the control plane rejected the session")]
    Control(#[from] ControlError),
    #[error("cannot issue a certificate or sign")]
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
    let Opened { session, verified, mut sender, mut receiver, peer, via } = opened;
    let agent = session.agent().clone();
    gateway.greetings.know([peer.ip()]);
    if let Some(unlogged) = gateway.sessions.turn(&agent, Instant::now()) {
        tracing::info!(%peer, %agent, epoch = session.epoch(), unlogged, "agent connected");
    }
    let shutdown = tasks.shutdown();
    tasks.spawn_to_end("link session", async move {
        let is_verified = verified.is_some();
        let carried = Box::pin(carry(&gateway, &session, &mut sender, &mut receiver, verified, turn));
        let ended = std::panic::AssertUnwindSafe(carried).catch_unwind().await.unwrap_or(Err(Ended::Panicked));
        // During shutdown, control refuses what a session asks for, perhaps before the session knows.
        let is_server_gone = |ended: &Ended| shutdown.is_cancelled() && !matches!(ended, Ended::Dismissed(_));
        let Some(ended) = ended.err().filter(|ended| !is_server_gone(ended)) else {
            return Box::pin(say_goodbye(&gateway, sender, receiver, via.is_some())).await;
        };
        if is_verified && !session.is_settled() && !matches!(ended, Ended::Fenced | Ended::Dismissed(_)) {
            gateway.control.metrics().session("unsettled");
            if let Some(unlogged) = gateway.unsettled.turn(Instant::now()) {
                tracing::warn!(%peer, agent = %session.agent(), why = %ended, unlogged, "agent disconnected before confirming its session; see the agent's log");
            }
        }
        Box::pin(end(&gateway, &session, sender, receiver, via, ended)).await;
    });
}

/// It is the server that is gone, not the agent.
async fn say_goodbye(gateway: &Gateway, sender: Sender, receiver: Receiver, is_relayed: bool) {
    let control = &gateway.control;
    let interval = gateway.admission.interval(if is_relayed { Kind::Relayed } else { Kind::Direct });
    let retry_after = gateway.busy.after_restart(control.session_count(), interval, control.return_grace());
    let goodbye = sender.end_with(FromServer::Busy { retry_after }, receiver);
    let _ = tokio::time::timeout(gateway.policy.goodbye_limit, goodbye).await;
}

async fn end(
    gateway: &Gateway,
    session: &Arc<Session>,
    sender: Sender,
    receiver: Receiver,
    via: Option<Via>,
    ended: Ended,
) {
    let control = &gateway.control;
    if let Some(unlogged) = gateway.sessions.turn(session.agent(), Instant::now()) {
        tracing::info!(agent = %session.agent(), epoch = session.epoch(), why = %ended, unlogged, "agent disconnected");
    }
    // Said from here or by the agent; and one that was silent for so long was suspect before.
    let is_down = matches!(ended, Ended::Dismissed(_) | Ended::Left) || via.is_none() && matches!(ended, Ended::Silent);
    if is_down {
        control.close_session(session).await;
    } else {
        // Whatever it ended with, the agent may be well, and on its way back. It may be the relay's doing: one that is told to
        // stop closes its agents' streams.
        control.lose_session(session, via.is_some_and(|via| via.streams.is_over())).await;
    }
    if let Ended::Dismissed(reason) = ended {
        sender.end_with(FromServer::Refused { reason, retry: false }, receiver).await;
    }
}

async fn carry(
    gateway: &Gateway,
    session: &Session,
    sender: &mut Sender,
    receiver: &mut Receiver,
    verified: Option<Verified>,
    turn: Turn,
) -> Result<(), Ended> {
    tokio::select! {
        biased;
        ended = welcome_and_serve(gateway, session, sender, receiver, verified, turn) => ended,
        () = session.fenced() => Err(session.dismissal().map_or(Ended::Fenced, Ended::Dismissed)),
    }
}

async fn welcome_and_serve(
    gateway: &Gateway,
    session: &Session,
    sender: &mut Sender,
    receiver: &mut Receiver,
    verified: Option<Verified>,
    mut turn: Turn,
) -> Result<(), Ended> {
    let is_relayed = session.relay_cloud().is_some();
    let pace = if is_relayed { Pace::through_relay() } else { Pace::of_fleet(gateway.control.agents_expected()) };
    session.set_beat(pace.beat);
    let reports = turn.run(Box::pin(welcome(gateway, session, sender, pace, verified))).await?;
    drop(turn);
    let replies = Replies::default();
    let proof = Proof::of(session, gateway.policy.relayed_proof_max);
    let pacing = Pacing::new(Instant::now());
    let (renewals, unstored) = (RenewalPace::default(), Vec::new());
    let mut reader = Reader { gateway, session, replies: &replies, reports, proof, pacing, renewals, unstored };
    let listening = pin!(listen(&mut reader, receiver));
    let talking = pin!(talk(&gateway.control, session, sender, &replies));
    both(listening, talking, &replies).await
}

/// Until one of them ends. A beat that was heard is answered in the same turn. They take turns at being first, because a task
/// may do so much in one turn and no more: an agent that never stops talking must not keep us from it.
async fn both<E>(
    mut listening: Pin<&mut impl Future<Output = E>>,
    mut talking: Pin<&mut impl Future<Output = E>>,
    replies: &Replies,
) -> E {
    let mut is_listening_first = false;
    poll_fn(|cx| {
        is_listening_first = !is_listening_first;
        if !is_listening_first && let Poll::Ready(ended) = talking.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if let Poll::Ready(ended) = listening.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if is_listening_first || replies.is_beat_due() { talking.as_mut().poll(cx) } else { Poll::Pending }
    })
    .await
}

/// From the agent to control.
struct Reader<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    replies: &'a Replies,
    /// Of a session whose reports are signed.
    reports: Option<Box<ReportCheck>>,
    /// Of an agent behind a relay.
    proof: Option<Box<Proof>>,
    pacing: Pacing,
    renewals: RenewalPace,
    unstored: Vec<Event>,
}

/// What is done with a message, and what is said in [`talk`], is boxed: its futures are large, and nearly all of a fleet's
/// sessions are at rest.
async fn listen(reader: &mut Reader<'_>, receiver: &mut Receiver) -> Result<(), Ended> {
    loop {
        let (session, replies, proof) = (reader.session, reader.replies, &mut reader.proof);
        let pace = Pace { beat: session.beat() };
        let period = match (session.relay_cloud(), &proof) {
            (None, _) => pace.in_frame(),
            (Some(_), Some(proof)) => proof.period(),
            (Some(_), None) => pace.silence_max(),
        };
        // Events that wait for the store are tried with every beat, which a relay only notes otherwise.
        receiver.want_beats(!reader.unstored.is_empty());
        let mut is_proved = || proof.as_mut().is_none_or(|proof| proof.is_good(session));
        let meanwhile = |moved| hear_part(session, moved, replies) && is_proved();
        let next = receiver.next(pace.silence_max(), period, meanwhile).await;
        if !is_proved() {
            return Err(Ended::Unproved);
        }
        let message = next?;
        reader.session.hear();
        if matches!(message, FromAgent::Beat) && reader.unstored.is_empty() {
            reader.beat();
            continue;
        }
        reader.tell_skipped(receiver.take_skipped());
        match (message, reader.reports.is_some()) {
            (FromAgent::Signed(signed), true) => {
                let mut skipped = None;
                let check = reader.reports.as_mut().expect("it was there just now");
                let messages = check.open(&signed, &mut skipped).map_err(Ended::Forged)?;
                reader.tell_skipped(skipped);
                for message in messages {
                    if let Some(message) = reader.hear_now(message) {
                        Box::pin(reader.hear(message)).await?;
                    }
                }
            }
            // A heartbeat says nothing that a carrier could not say.
            (message @ (FromAgent::Beat | FromAgent::Unknown), _) | (message, false) => {
                if let Some(message) = reader.hear_now(message) {
                    Box::pin(reader.hear(message)).await?;
                }
            }
            (_, true) => return Err(Ended::Forged(Untrusted::Unsigned)),
        }
    }
}

impl Reader<'_> {
    fn tell_skipped(&self, skipped: Option<Skipped>) {
        if let Some(Skipped { what, count, first }) = skipped
            && let Some(unlogged) = self.gateway.unkept.turn(Instant::now())
        {
            tracing::warn!(agent = %self.session.agent(), what, count, first, unlogged, "skipped unreadable items of a message");
        }
    }

    /// The whole cost of an idle agent: no allocation, no contended lock, no second turn of the session's task.
    fn beat(&mut self) {
        if self.session.relay_cloud().is_some() {
            return; // its relay has answered
        }
        let (present, control) = (Pace { beat: self.session.beat() }, &self.gateway.control);
        match self.pacing.beat(Instant::now(), present, || Pace::of_fleet(control.agents_expected())) {
            Answer::Nothing => {}
            Answer::Beat => self.replies.offer_beat(),
            Answer::Pace(beat_interval) => self.reply(FromServer::Pace { beat_interval }),
        }
    }

    fn reply(&self, message: FromServer) {
        self.replies.offer(message);
        self.session.wake();
    }

    /// An outcome, unless it has to wait: in a call to the whole fleet one comes of every agent. Gives the rest back.
    fn hear_now(&self, message: FromAgent) -> Option<FromAgent> {
        let FromAgent::Outcome { operation, outcome } = message else { return Some(message) };
        let waits = self.gateway.control.arrived_now(self.session, operation, outcome)?;
        Some(FromAgent::Outcome { operation: waits.0, outcome: waits.1 })
    }

    async fn hear(&mut self, message: FromAgent) -> Result<(), Ended> {
        let Self { gateway, session, unstored, .. } = self;
        let control = &gateway.control;
        match message {
            FromAgent::Outcome { operation, outcome } => control.arrived(session, operation, outcome).await?,
            FromAgent::Observed { observations } => {
                if let Some(reported_at) = observations.iter().map(|(_, snapshot)| snapshot.reported_at).max() {
                    control.saw_report(session, reported_at).await;
                }
                control.observed(session, observations).await;
            }
            FromAgent::Events { events } => {
                unstored.extend(events);
                store_events(gateway, session, unstored).await?;
            }
            FromAgent::Renew { csr_der } => {
                if !self.renewals.take(control.believed().generation, Instant::now()) {
                    return Ok(());
                }
                control.agent_renews(session.agent()).await;
                let renewed = renewed(gateway, session, &csr_der)?;
                self.reply(renewed);
            }
            FromAgent::Beat => {
                store_events(gateway, session, unstored).await?;
                self.beat();
            }
            FromAgent::Paced { beat_interval } => {
                if self.pacing.paced(beat_interval) {
                    session.set_beat(beat_interval);
                }
            }
            FromAgent::Goodbye => return Err(Ended::Left),
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
                    self.reply(FromServer::BuildPart { upgrade, offset, bytes });
                }
            }
            FromAgent::UpgradeReport { upgrade, step, reason } => {
                // The agent sends it again when it is told again; a full store must not end the session.
                if let Err(error) = control.upgrade_reported(session, upgrade, step, reason).await
                    && let Some(unlogged) = gateway.unkept.turn(Instant::now())
                {
                    tracing::warn!(agent = %session.agent(), %upgrade, %error, unlogged, "cannot store upgrade result");
                }
            }
            FromAgent::Settled { epoch, recorded } if epoch == session.epoch() && session.first_settles() => {
                control.settled(session, recorded).await;
            }
            FromAgent::Trusted(trusted) => control.agent_trusts(session, trusted).await,
            FromAgent::Settled { .. } | FromAgent::Seen { .. } | FromAgent::Unknown => {}
            FromAgent::Enrol { .. }
            | FromAgent::EnrolRelay { .. }
            | FromAgent::Return { .. }
            | FromAgent::Hello { .. }
            | FromAgent::Signed(_) => return Err(Ended::Closed),
        }
        Ok(())
    }
}

/// A certificate for the key that the session has; another one would be a second identity that nobody enrolled.
fn renewed(gateway: &Gateway, session: &Session, csr_der: &[u8]) -> Result<FromServer, Ended> {
    if proctor_pki::requested_fingerprint(csr_der)? != session.key_fingerprint() {
        return Err(Ended::RenewKey);
    }
    let believed = gateway.control.believed();
    let authorities = &believed.authorities;
    let certificate_pem = authorities.issue_agent(csr_der, session.agent(), now(), CERTIFICATE_LIFETIME)?;
    if let Ok(expires_at) = proctor_pki::expires_at(&certificate_pem) {
        session.renewed(expires_at.as_second());
    }
    Ok(FromServer::Renewed { certificate_pem })
}

/// Nothing whole has come for longer than a heartbeat. Where a large frame is on its way, the agent's beats are behind it, and
/// it must hear from us all the same. Else it is suspect; something small is sent: where the agent's host came back without
/// its connection, that ends the connection. (Behind a relay nothing comes of an agent at rest.)
fn hear_part(session: &Session, moved: bool, replies: &Replies) -> bool {
    if session.relay_cloud().is_none() {
        if moved {
            session.hear()
        } else {
            session.suspect()
        }
        replies.offer_beat();
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
                tracing::warn!(agent = %session.agent(), %error, unlogged, "cannot store events, retrying");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_beat_that_is_heard_is_answered_in_the_same_turn_whoever_is_first() {
        let (replies, answered, turns) = (Replies::default(), AtomicU32::new(0), AtomicU32::new(0));
        // Hears a beat in every turn, and must find it answered in the next.
        let listening = poll_fn(|cx| {
            assert_eq!(answered.load(Ordering::Relaxed), turns.fetch_add(1, Ordering::Relaxed));
            replies.offer_beat();
            cx.waker().wake_by_ref();
            if turns.load(Ordering::Relaxed) > 10 { Poll::Ready(()) } else { Poll::Pending }
        });
        let talking = poll_fn(|_| {
            answered.fetch_add(u32::from(replies.take_beat()), Ordering::Relaxed);
            Poll::<()>::Pending
        });

        both(pin!(listening), pin!(talking), &replies).await;

        assert_eq!(answered.load(Ordering::Relaxed), 10);
    }
}

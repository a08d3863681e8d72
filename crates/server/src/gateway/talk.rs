//! Sends control's messages for one agent over its session.
//!
//! Promised: first what keeps the session alive and what must stop, then what the agent must forget, know and do, and
//! last what is large; nothing queues behind a slow socket: messages are fetched when the socket can take them, also
//! between two frames of many assignments. A heartbeat is answered without looking for anything else.
//! Absent: signatures and frames (see `sender`).

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use proctor_model::{Namespace, OperationId, PoolId, ProcessKey};
use proctor_store::{Assignment, Assignments, PoolAssignment};
use proctor_wire::{Assign, FromServer, ITEMS_MAX, RegisteredPart, spec_bytes};

use super::replies::Replies;
use super::sender::Sender;
use super::session::Ended;
use crate::control::{Asked, Control, Delivery, Question, Session};

/// Operations sent before the socket is asked again whether it can take more.
const DELIVERIES_MAX: usize = 256;
const ASSIGNMENTS_MAX: usize = 256;
/// Of assignments in one frame; a larger spec is alone in its frame. Two seconds at 64 kbit/s, which whatever is urgent waits.
const ASSIGN_BYTES_MAX: usize = 16 * 1024;
/// Each of some hundred bytes at most.
const NAMES_IN_PART_MAX: usize = 1024;

/// From control to the agent.
pub(super) async fn talk(
    control: &Control,
    session: &Session,
    sender: &mut Sender,
    replies: &Replies,
) -> Result<(), Ended> {
    let mut talk = Talk { control, session, sender, replies, cancelled: Vec::new() };
    loop {
        talk.answer_beat().await?;
        if session.take_work() {
            Box::pin(talk.say_all()).await?;
        }
        let mut woken = pin!(session.woken());
        poll_fn(|cx| if replies.is_beat_due() { Poll::Ready(()) } else { woken.as_mut().poll(cx) }).await;
    }
}

struct Talk<'a> {
    control: &'a Control,
    session: &'a Session,
    sender: &'a mut Sender,
    replies: &'a Replies,
    /// To be cancelled as soon as they are sent: an agent drops a cancel of what it has not received.
    cancelled: Vec<OperationId>,
}

impl Talk<'_> {
    async fn answer_beat(&mut self) -> Result<(), Ended> {
        match self.replies.take_beat() {
            true => self.sender.send_plain(FromServer::Beat).await,
            false => Ok(()),
        }
    }

    /// What is urgent, what it must know, what it must do, and what is large, in this order.
    async fn say_all(&mut self) -> Result<(), Ended> {
        loop {
            self.feed_urgent(|_| false).await?;
            for operations in self.session.take_acknowledged().chunks(ITEMS_MAX) {
                self.sender.feed(FromServer::Acknowledge { operations: operations.to_vec() }).await?;
            }
            if let Some(up_to) = self.session.take_events_seen() {
                self.sender.feed(FromServer::EventsSeen { up_to }).await?;
            }
            let mut is_more = self.session.is_settled() && {
                self.ask().await?;
                self.give_work().await?
            };
            self.sender.flush().await?;
            if let Some(large) = self.replies.take_large() {
                self.sender.feed(large).await?;
                self.sender.flush().await?;
                is_more = true;
            }
            if !is_more {
                return Ok(());
            }
        }
    }

    /// What nothing may hold up: it keeps the session, or must have effect at once. To be followed by a flush. Operations that
    /// are held back here are cancelled when they are sent.
    async fn feed_urgent(&mut self, is_held: impl Fn(&OperationId) -> bool) -> Result<(), Ended> {
        self.answer_beat().await?;
        for reply in self.replies.take_small() {
            self.sender.feed(reply).await?;
        }
        if self.session.is_settled() {
            let (held, known): (Vec<_>, Vec<_>) =
                self.control.take_cancels(self.session).into_iter().partition(|operation| is_held(operation));
            self.cancelled.extend(held);
            for operations in known.chunks(ITEMS_MAX) {
                self.sender.feed(FromServer::Cancel { operations: operations.to_vec() }).await?;
            }
            self.feed_ping().await?;
        }
        Ok(())
    }

    /// Queries to the agent, whom it should trust, and which version it should become.
    async fn ask(&mut self) -> Result<(), Ended> {
        for Question { request, key, asked } in self.session.take_questions() {
            let question = match asked {
                Asked::Usage(range) => FromServer::QueryUsage { request, key, range },
                Asked::Log(query) => FromServer::QueryLog { request, key, query },
            };
            self.sender.feed(question).await?;
        }
        if let Some(announced) = self.control.take_announcement(self.session) {
            self.sender.feed(FromServer::Authorities(announced)).await?;
        }
        if let Some(order) = self.control.take_upgrade(self.session) {
            self.sender.feed(FromServer::Upgrade(order)).await?;
        }
        Ok(())
    }

    async fn feed_ping(&mut self) -> Result<(), Ended> {
        match self.session.take_ping() {
            Some(number) => self.sender.feed(FromServer::Ping { number }).await,
            None => Ok(()),
        }
    }

    /// What the agent must know and must do; returns whether there is more.
    async fn give_work(&mut self) -> Result<bool, Ended> {
        // In this order: whoever submits sets the flag before the target is there, so the spec of
        // every delivery in hand is among what is assigned now, or was before.
        let mut deliveries = self.control.take_deliveries(self.session, DELIVERIES_MAX);
        let is_more = deliveries.len() == DELIVERIES_MAX;
        while self.session.take_reassign() {
            // Boxed: it is large, and most deliveries need none.
            deliveries = Box::pin(self.assign(deliveries)).await?;
        }
        for delivery in deliveries {
            self.operate(delivery).await?;
        }
        Ok(is_more)
    }

    async fn operate(&mut self, delivery: Delivery) -> Result<(), Ended> {
        // With its spec, also where that was assigned just now: an agent may have skipped the assignment because it
        // cannot read it, and begins a queued operation when others have been assigned.
        let operation = delivery.operation;
        let was_cancelled = self.take_cancelled(operation);
        // Now, and not when it was taken: on a slow link it may have been held for minutes. What is too late by now never
        // reaches the agent, and ends when its time is over.
        let expires_in = delivery.expires_at.saturating_duration_since(Instant::now());
        if expires_in.is_zero() {
            return Ok(());
        }
        let message =
            FromServer::Operate { operation, key: delivery.key, kind: delivery.kind, spec: delivery.spec, expires_in };
        self.sender.feed(message).await?;
        if was_cancelled {
            self.sender.feed(FromServer::Cancel { operations: vec![operation] }).await?;
        }
        Ok(())
    }

    /// Whether it was cancelled while it was held.
    fn take_cancelled(&mut self, operation: OperationId) -> bool {
        let at = self.cancelled.iter().position(|cancelled| *cancelled == operation);
        at.map(|at| self.cancelled.swap_remove(at)).is_some()
    }

    /// Sends what changed in the order of its generations, so that an agent that has seen one has seen
    /// all before it. Between two frames goes what is urgent, and the deliveries whose processes are assigned by then.
    /// Returns deliveries that came meanwhile and need what has been registered since.
    async fn assign(&mut self, mut deliveries: Vec<Delivery>) -> Result<Vec<Delivery>, Ended> {
        let (control, session) = (self.control, self.session);
        let is_resync = session.take_resync();
        let since = if is_resync { 0 } else { session.sent_generation() };
        let Assignments { processes, pools, all_through } = control.assignments(session, since).await?;
        if is_resync || all_through.is_some() {
            let why =
                if is_resync { "agent holds other registrations" } else { "agent is behind the oldest tombstone" };
            tracing::warn!(agent = %session.agent(), generation = session.sent_generation(), why, "sending the full registration list");
            // Before the generations that they say it has: an agent that ends in between is told again.
            for part in registered_parts(&processes, &pools) {
                self.sender.feed(FromServer::Registered(part)).await?;
            }
        }
        let newest =
            processes.iter().map(|a| a.generation).chain(pools.iter().map(|p| p.generation)).chain(all_through).max();
        let mut pools = pools.into_iter().map(|assigned| (assigned.generation, assigned.pool)).peekable();
        let (mut frame, mut later) = (AssignFrame::default(), Vec::new());
        let mut processes = processes.into_iter();
        while let Some(process) = processes.next() {
            let earlier: Vec<_> =
                std::iter::from_fn(|| pools.next_if(|(pool, _)| *pool < process.generation)).collect();
            if !earlier.is_empty() {
                frame.feed(self.sender).await?;
                self.sender.feed(FromServer::AssignPools { pools: earlier }).await?;
            }
            if !frame.has_room(&process) {
                frame.feed(self.sender).await?;
                self.sender.flush().await?;
                let unassigned = std::iter::once(&process).chain(processes.as_slice());
                self.say_between(&mut deliveries, &mut later, unassigned).await?;
            }
            frame.add(process);
        }
        frame.feed(self.sender).await?;
        let rest: Vec<_> = pools.collect();
        for pools in rest.chunks(ASSIGNMENTS_MAX) {
            self.sender.feed(FromServer::AssignPools { pools: pools.to_vec() }).await?;
        }
        if let Some(newest) = newest {
            session.set_sent_generation(newest);
        }
        for delivery in deliveries {
            self.operate(delivery).await?;
        }
        Ok(later)
    }

    /// On a slow link all assignments take minutes: a cancel or an operation does not wait for them.
    async fn say_between(
        &mut self,
        deliveries: &mut Vec<Delivery>,
        later: &mut Vec<Delivery>,
        unassigned: impl Iterator<Item = &Assignment>,
    ) -> Result<(), Ended> {
        let held: HashSet<OperationId> = deliveries.iter().chain(&*later).map(|delivery| delivery.operation).collect();
        self.feed_urgent(|operation| held.contains(operation)).await?;
        let room = DELIVERIES_MAX.saturating_sub(deliveries.len() + later.len());
        let new = self.control.take_deliveries(self.session, room);
        // As in `give_work`: where something was registered since, they may need it.
        let waiting = if self.session.is_reassign_due() || !later.is_empty() { later } else { &mut *deliveries };
        waiting.extend(new);
        if !deliveries.is_empty() {
            let unassigned: HashSet<&ProcessKey> = unassigned.map(|assignment| &assignment.key).collect();
            let (held, ready) =
                std::mem::take(deliveries).into_iter().partition(|delivery| unassigned.contains(&delivery.key));
            *deliveries = held;
            let ready: Vec<Delivery> = ready;
            for delivery in ready {
                self.operate(delivery).await?;
            }
        }
        self.sender.flush().await
    }
}

/// What is registered, by name. There is one part at least.
fn registered_parts(processes: &[Assignment], pools: &[PoolAssignment]) -> Vec<RegisteredPart> {
    let mut parts = Vec::new();
    let mut offset = 0;
    let mut add = |processes: Vec<ProcessKey>, pools: Vec<(Namespace, PoolId)>| {
        let names = u32::try_from(processes.len() + pools.len()).expect("a part is small");
        parts.push(RegisteredPart { offset, processes, pools, is_last: false });
        offset += names;
    };
    let registered: Vec<_> = processes.iter().filter(|process| process.spec.is_some()).collect();
    for processes in registered.chunks(NAMES_IN_PART_MAX) {
        add(processes.iter().map(|process| process.key.clone()).collect(), Vec::new());
    }
    for pools in pools.chunks(NAMES_IN_PART_MAX) {
        add(
            Vec::new(),
            pools.iter().map(|PoolAssignment { pool, .. }| (pool.namespace.clone(), pool.id.clone())).collect(),
        );
    }
    if parts.is_empty() {
        parts.push(RegisteredPart { offset: 0, processes: Vec::new(), pools: Vec::new(), is_last: false });
    }
    if let Some(last) = parts.last_mut() {
        last.is_last = true;
    }
    parts
}

/// Assignments for one frame, bounded in number and in bytes.
#[derive(Default)]
struct AssignFrame {
    assignments: Vec<Assign>,
    bytes: usize,
}

impl AssignFrame {
    fn has_room(&self, assignment: &Assignment) -> bool {
        let bytes = self.bytes + bytes_of(assignment);
        self.assignments.is_empty() || self.assignments.len() < ASSIGNMENTS_MAX && bytes <= ASSIGN_BYTES_MAX
    }

    fn add(&mut self, assignment: Assignment) {
        self.bytes += bytes_of(&assignment);
        self.assignments.push(Assign {
            generation: assignment.generation,
            key: assignment.key,
            spec: assignment.spec,
            managed: assignment.managed,
            registered_at: assignment.registered_at / 1000,
        });
    }

    async fn feed(&mut self, sender: &mut Sender) -> Result<(), Ended> {
        let Self { assignments, .. } = std::mem::take(self);
        match assignments.is_empty() {
            true => Ok(()),
            false => Ok(sender.feed(FromServer::Assign { assignments }).await?),
        }
    }
}

fn bytes_of(assignment: &Assignment) -> usize {
    assignment.spec.as_ref().map_or(0, spec_bytes)
}

//! What control has for one agent goes out on its session.
//!
//! Promised: first what it has asked for, must forget and must know, then what it must do; nothing queues behind a slow
//! socket: what there is to send is asked for when the socket can take it. A heartbeat is answered without looking for
//! anything else. Absent: signatures and frames (see `sender`).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use proctor_model::{Namespace, PoolId, ProcessKey};
use proctor_store::{Assignment, Assignments, PoolAssignment};
use proctor_wire::{Assign, FRAME_BYTES_MAX, FromServer, ITEMS_MAX, RegisteredPart, spec_bytes};

use super::replies::Replies;
use super::sender::Sender;
use super::session::Ended;
use crate::control::{Asked, Control, Question, Session};

/// Operations sent before the socket is asked again whether it can take more.
const DELIVERIES_MAX: usize = 256;
const ASSIGNMENTS_MAX: usize = 256;
/// Each of some hundred bytes at most.
const NAMES_IN_PART_MAX: usize = 1024;

/// From control to the agent.
pub(super) async fn talk(control: &Control, session: &Session, sender: &mut Sender, replies: &Replies) -> Result<(), Ended> {
    loop {
        answer_beat(sender, replies).await?;
        if session.take_work() {
            Box::pin(say_all(control, session, sender, replies)).await?;
        }
        let mut woken = pin!(session.woken());
        poll_fn(|cx| if replies.is_beat_due() { Poll::Ready(()) } else { woken.as_mut().poll(cx) }).await;
    }
}

async fn answer_beat(sender: &mut Sender, replies: &Replies) -> Result<(), Ended> {
    match replies.take_beat() {
        true => sender.send_plain(FromServer::Beat).await,
        false => Ok(()),
    }
}

/// First what it has asked for, must forget and must know, then what it must do.
async fn say_all(control: &Control, session: &Session, sender: &mut Sender, replies: &Replies) -> Result<(), Ended> {
    loop {
        answer_beat(sender, replies).await?;
        for reply in replies.take() {
            sender.feed(reply).await?;
        }
        for operations in session.take_acknowledged().chunks(ITEMS_MAX) {
            sender.feed(FromServer::Acknowledge { operations: operations.to_vec() }).await?;
        }
        if let Some(up_to) = session.take_events_seen() {
            sender.feed(FromServer::EventsSeen { up_to }).await?;
        }
        let is_more = session.is_settled() && {
            ask(control, session, sender).await?;
            give_work(control, session, sender).await?
        };
        sender.flush().await?;
        if !is_more {
            return Ok(());
        }
    }
}

/// What somebody wants to know of the agent, and which version it should become.
async fn ask(control: &Control, session: &Session, sender: &mut Sender) -> Result<(), Ended> {
    for Question { request, key, asked } in session.take_questions() {
        let question = match asked {
            Asked::Usage(range) => FromServer::QueryUsage { request, key, range },
            Asked::Log(query) => FromServer::QueryLog { request, key, query },
        };
        sender.feed(question).await?;
    }
    feed_ping(session, sender).await?;
    if let Some(order) = control.take_upgrade(session) {
        sender.feed(FromServer::Upgrade(order)).await?;
    }
    Ok(())
}

async fn feed_ping(session: &Session, sender: &mut Sender) -> Result<(), Ended> {
    match session.take_ping() {
        Some(number) => sender.feed(FromServer::Ping { number }).await,
        None => Ok(()),
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
    let Assignments { processes, pools, all_through } = control.assignments(session).await?;
    if all_through.is_some() {
        tracing::warn!(agent = %session.agent(), generation = session.sent_generation(), "an agent is older than what is remembered of unregistrations: it is told everything that is registered");
        // Before the generations that they say it has: an agent that ends in between is told again.
        for part in registered_parts(&processes, &pools) {
            sender.feed(FromServer::Registered(part)).await?;
        }
    }
    let newest =
        processes.iter().map(|a| a.generation).chain(pools.iter().map(|p| p.generation)).chain(all_through).max();
    let mut pools = pools.into_iter().map(|assigned| (assigned.generation, assigned.pool)).peekable();
    let mut frame = AssignFrame::default();
    for process in processes {
        let earlier: Vec<_> = std::iter::from_fn(|| pools.next_if(|(pool, _)| *pool < process.generation)).collect();
        if !earlier.is_empty() {
            frame.flush(sender).await?;
            sender.feed(FromServer::AssignPools { pools: earlier }).await?;
        }
        frame.add(process, sender).await?;
        // All of it may take longer than an agent behind a relay has for its next answer.
        feed_ping(session, sender).await?;
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

//! Sessions over a link of 64 kbit/s, in virtual time, with the limits and heartbeats of the product.

#![allow(clippy::unwrap_used, reason = "test code, outside of test functions")]

use std::time::Duration;

use proctor_model::{OperationId, OperationKind, Outcome, TaskId};
use proctor_wire::{AgentCodec, Counted, FromAgent, FromServer, Incoming, Lost, Outgoing, ServerCodec, ends, framed};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

const MEBIBYTE: usize = 1024 * 1024;
const BEAT: Duration = Duration::from_secs(5);
/// A server's limit while a frame is in transit.
const BEAT_IN_FRAME: Duration = Duration::from_secs(7);
/// Of an agent, and of a server.
const SILENCE_MAX: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(16));

type Stream = Counted<DuplexStream>;

struct Agent {
    sender: Outgoing<Stream, FromServer, FromAgent>,
    receiver: Incoming<Stream, FromServer, FromAgent>,
}

struct Server {
    sender: Outgoing<Stream, FromAgent, FromServer>,
    receiver: Incoming<Stream, FromAgent, FromServer>,
}

/// Both ends, and the link between them, which moves bytes when it is polled: this many each way, and then none.
fn linked(up_max: usize, down_max: usize) -> (Agent, Server, impl Future<Output = ()>) {
    let (ours, agent_side) = tokio::io::duplex(1024);
    let (theirs, server_side) = tokio::io::duplex(1024);
    let (ours, theirs) = (Counted::new(ours), Counted::new(theirs));
    let counters = (ours.counters(), theirs.counters());
    let (sender, receiver) = ends(framed(ours, AgentCodec::new()), counters.0);
    let agent = Agent { sender, receiver };
    let (sender, receiver) = ends(framed(theirs, ServerCodec::new()), counters.1);
    let (agent_reads, agent_writes) = tokio::io::split(agent_side);
    let (server_reads, server_writes) = tokio::io::split(server_side);
    let carry = async move {
        tokio::join!(throttle(agent_reads, server_writes, up_max), throttle(server_reads, agent_writes, down_max));
    };
    (agent, Server { sender, receiver }, carry)
}

/// 64 kbit/s.
async fn throttle(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, bytes_max: usize) {
    let (mut piece, mut carried) = ([0; 1024], 0);
    while carried < bytes_max {
        let count = from.read(&mut piece).await.unwrap_or(0);
        if count == 0 || to.write_all(&piece[..count]).await.is_err() {
            break; // an end has given up
        }
        carried += count;
        tokio::time::sleep(Duration::from_secs(1) * u32::try_from(count).unwrap() / 8192).await;
    }
    std::future::pending().await
}

fn operation() -> OperationId {
    OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), 0)
}

/// A frame of about a mebibyte from the agent.
fn outcome() -> FromAgent {
    let output = "x".repeat(MEBIBYTE - 1024);
    FromAgent::Outcome { operation: operation(), outcome: Outcome { output, ..Outcome::success(true) } }
}

/// A frame of about a mebibyte to the agent.
fn operate() -> FromServer {
    let command = || Some("x".repeat(128 * 1024 - 1).parse().unwrap());
    let spec = proctor_model::samples::spec(|spec| {
        let control = &mut spec.control;
        (control.start, control.stop, control.restart, control.reload) = (command(), command(), command(), command());
        (control.kill, control.version, control.health) = (command(), command(), command());
    });
    let (key, kind) = ("team/web".parse().unwrap(), OperationKind::Start);
    FromServer::Operate { operation: operation(), key, kind, spec: Some(spec), expires_in: Duration::from_secs(600) }
}

/// Like an agent: heartbeats all the time, and its messages.
async fn agent(agent: Agent, says: Option<FromAgent>, heard: mpsc::Sender<()>) -> Lost {
    let Agent { mut sender, mut receiver } = agent;
    let listen = async {
        loop {
            match receiver.next(SILENCE_MAX.0, BEAT, |_| true).await {
                Ok(FromServer::Beat) => {}
                Ok(_) => heard.send(()).await.unwrap(),
                Err(lost) => return lost,
            }
        }
    };
    let talk = async {
        let mut says = says;
        loop {
            let message = says.take().unwrap_or(FromAgent::Beat);
            if let Err(lost) = sender.send(message).await {
                return lost;
            }
            tokio::time::sleep(BEAT).await;
        }
    };
    tokio::select! {
        lost = listen => lost,
        lost = talk => lost,
    }
}

/// Like a server: answers heartbeats, and tells an agent whose frame is in transit that it is heard.
async fn server(server: Server, says: Option<FromServer>, heard: mpsc::Sender<()>) -> Lost {
    let Server { mut sender, mut receiver } = server;
    let (replies, mut to_reply) = mpsc::channel(4);
    let listen = async {
        loop {
            let meanwhile = |moved: bool| {
                if moved {
                    let _ = replies.try_send(FromServer::Beat);
                }
                true
            };
            match receiver.next(SILENCE_MAX.1, BEAT_IN_FRAME, meanwhile).await {
                Ok(FromAgent::Beat) => drop(replies.try_send(FromServer::Beat)),
                Ok(_) => heard.send(()).await.unwrap(),
                Err(lost) => return lost,
            }
        }
    };
    let talk = async {
        let mut says = says;
        loop {
            let message = match says.take() {
                Some(message) => message,
                None => to_reply.recv().await.unwrap(),
            };
            if let Err(lost) = sender.send(message).await {
                return lost;
            }
        }
    };
    tokio::select! {
        lost = listen => lost,
        lost = talk => lost,
    }
}

#[tokio::test(start_paused = true)]
async fn a_mebibyte_gets_through_either_way_and_both_ways_at_once() {
    for (up, down) in [(true, false), (false, true), (true, true)] {
        let (ours, theirs, carry) = linked(usize::MAX, usize::MAX);
        let (heard, mut hears) = mpsc::channel(2);
        let expected = usize::from(up) + usize::from(down);
        let both = async {
            for _ in 0..expected {
                hears.recv().await.unwrap();
            }
        };
        let begun = Instant::now();

        tokio::select! {
            lost = agent(ours, up.then(outcome), heard.clone()) => panic!("the agent gives up: {lost}"),
            lost = server(theirs, down.then(operate), heard.clone()) => panic!("the server gives up: {lost}"),
            () = carry => unreachable!("it carries for ever"),
            () = both => {}
        }

        let took = begun.elapsed();
        assert!(took > Duration::from_secs(100) && took < Duration::from_secs(200), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_stops_inside_a_frame_is_given_up_by_both_within_the_limits_of_silence() {
    let carried = MEBIBYTE / 2;
    let stops_after = Duration::from_secs(1) * u32::try_from(carried).unwrap() / 8192;
    for (up_max, down_max) in [(carried, usize::MAX), (usize::MAX, carried), (carried, carried)] {
        let (ours, theirs, carry) = linked(up_max, down_max);
        let (heard, _hears) = mpsc::channel(64);
        let begun = Instant::now();
        let end = |lost: Lost| (lost, begun.elapsed());

        let (agents, servers) = tokio::select! {
            ends = async {
                tokio::join!(
                    async { end(agent(ours, Some(outcome()), heard.clone()).await) },
                    async { end(server(theirs, Some(operate()), heard.clone()).await) },
                )
            } => ends,
            () = carry => unreachable!("it is pending"),
        };

        for (lost, after) in [agents, servers] {
            assert!(matches!(lost, Lost::Silent | Lost::Stuck | Lost::Closed | Lost::Broken(_)), "{lost:?}");
            let over = after.saturating_sub(stops_after);
            assert!(after > stops_after && over < Duration::from_secs(17), "{lost:?} after {after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_not_there_is_silent_and_one_that_does_not_read_is_stuck_within_todays_limits() {
    let (mut ours, mut theirs, _carry) = linked(0, 0);
    let begun = Instant::now();

    let silent = ours.receiver.next(SILENCE_MAX.0, BEAT, |_| true).await;
    let silent_after = begun.elapsed();
    let stuck = theirs.sender.send(operate()).await;
    let stuck_after = begun.elapsed() - silent_after;

    assert!(matches!(silent, Err(Lost::Silent)), "{silent:?}");
    assert!(matches!(stuck, Err(Lost::Stuck)), "{stuck:?}");
    assert_eq!((silent_after, stuck_after.as_secs()), (SILENCE_MAX.0, 15));
}

//! The same fan-out with plain NATS: one requester publishes a request to the subject of every peer and waits for all
//! replies.
//!
//! The protocol is written by hand: it is five words, and a client library would bring a reconnecting task and
//! buffers for each of thousands of connections. Absent on this side: TLS, a record of requests and replies, fsync.

mod connection;
mod protocol;
mod responders;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use proctor_testkit::{binary, free_port};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use super::children::{Launch, Running};
use connection::{Receiver, open};
use protocol::{Said, publish};

pub(crate) use responders::{Responders, respond};

/// Where `scripts/install-bench-peers` puts it.
const PROGRAM: &str = "debian/usr/sbin/nats-server";
const INBOX: &str = "_INBOX.bench.";
/// What responders print once all are connected.
const READY: &str = "ready";
const STARTED_WITHIN: Duration = Duration::from_secs(30);
const READY_WITHIN: Duration = Duration::from_secs(300);
const ROUND_WITHIN: Duration = Duration::from_secs(120);
/// Many replies.
const READ_BYTES: usize = 256 * 1024;
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Nats {
    receiver: Receiver,
    sender: OwnedWriteHalf,
    /// All requests of a round.
    requests: Bytes,
    agents: usize,
    _responders: Running,
    _server: Running,
}

enum Heard {
    Reply(usize),
    Ping,
    Other,
}

/// Why it cannot take part, if so.
pub(super) fn absence(peers: &Path) -> Option<String> {
    (!peers.join(PROGRAM).exists()).then(|| "nats-server is not installed and is left out.".to_owned())
}

impl Nats {
    pub(super) async fn start(
        peers: &Path,
        dir: &Path,
        agents: usize,
        request_bytes: usize,
        reply_bytes: usize,
    ) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let line = format!("-a {} -p {}", address.ip(), address.port());
        let mut server = launch("nats-server", &peers.join(PROGRAM), &line, dir)?;
        let (receiver, sender) = until_open(&mut server, address).await?;
        let line = format!("nats-responders --server {address} --agents {agents} --reply-bytes {reply_bytes}");
        let mut responders = launch("nats-responders", &binary("proctor-bench"), &line, dir)?;
        until_ready(&mut responders).await?;
        let requests = requests(agents, request_bytes);
        Ok(Self { receiver, sender, requests, agents, _responders: responders, _server: server })
    }

    /// From the first request until the last reply.
    pub(super) async fn round(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        let (sender, receiver, agents) = (&mut self.sender, &mut self.receiver, self.agents);
        let publishing = async { anyhow::Ok(sender.write_all(&self.requests).await?) };
        let both = async { tokio::try_join!(publishing, replies(receiver, agents)) };
        let ((), pinged) = tokio::time::timeout(ROUND_WITHIN, both).await.context("NATS does not answer all")??;
        let took = begun.elapsed();
        if pinged {
            self.sender.write_all(b"PONG\r\n").await?;
        }
        Ok(took)
    }
}

/// Waits for a reply of each; returns whether the server wants a sign of life.
async fn replies(receiver: &mut Receiver, agents: usize) -> Result<bool> {
    let mut seen = vec![false; agents];
    let (mut missing, mut pinged) = (agents, false);
    while missing > 0 {
        match receiver.next(heard).await? {
            Heard::Reply(index) => {
                let known = seen.get_mut(index).with_context(|| format!("a reply of peer {index}"))?;
                ensure!(!*known, "peer {index} replied twice");
                *known = true;
                missing -= 1;
            }
            Heard::Ping => pinged = true,
            Heard::Other => {}
        }
    }
    Ok(pinged)
}

fn heard(said: Said<'_>) -> Heard {
    match said {
        Said::Message { subject, .. } => {
            let index = subject.strip_prefix(INBOX).and_then(|index| index.parse().ok());
            index.map_or(Heard::Other, Heard::Reply)
        }
        Said::Ping => Heard::Ping,
        Said::Info | Said::Ok | Said::Pong => Heard::Other,
    }
}

fn requests(agents: usize, bytes: usize) -> Bytes {
    let payload = vec![b'q'; bytes];
    let mut requests = Vec::new();
    for index in 0..agents {
        publish(&mut requests, &subject(index), &format!("{INBOX}{index}"), &payload);
    }
    Bytes::from(requests)
}

fn subject(index: usize) -> String {
    format!("fleet.{index}")
}

fn launch(name: &str, program: &Path, line: &str, dir: &Path) -> Result<Running> {
    let arguments = line.split_whitespace().map(str::to_owned).collect();
    Launch { name: name.to_owned(), program: program.to_owned(), arguments, environment: Vec::new(), dir }.start()
}

async fn until_open(server: &mut Running, address: SocketAddr) -> Result<(Receiver, OwnedWriteHalf)> {
    let begun = Instant::now();
    loop {
        server.ensure_running()?;
        match open(address, &format!("{INBOX}*"), READ_BYTES).await {
            Ok(opened) => return Ok(opened),
            Err(error) => ensure!(begun.elapsed() < STARTED_WITHIN, "the NATS server does not answer: {error:#}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn until_ready(responders: &mut Running) -> Result<()> {
    let begun = Instant::now();
    while responders.printed().trim() != READY {
        responders.ensure_running()?;
        ensure!(begun.elapsed() < READY_WITHIN, "the peers on NATS are not connected after {READY_WITHIN:?}");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

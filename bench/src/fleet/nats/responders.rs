//! The peers of agents: connections that answer every request, in a process of their own.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::JoinSet;

use super::connection::{Receiver, open};
use super::protocol::{Said, publish};
use super::{READY, subject};

/// Connections that are opened at the same time.
const OPENING: usize = 64;
/// A request with its payload.
const READ_BYTES: usize = 2048;

#[derive(Clone, Debug, Args)]
pub(crate) struct Responders {
    #[arg(long)]
    server: SocketAddr,
    #[arg(long)]
    agents: usize,
    #[arg(long)]
    reply_bytes: usize,
}

enum Asked {
    Reply(String),
    Ping,
    Nothing,
}

/// Says on stdout when all are there, and ends with the first connection that does.
pub(crate) async fn respond(options: Responders) -> Result<()> {
    let opening =
        (0..options.agents).map(|index| async move { open(options.server, &subject(index), READ_BYTES).await });
    let opened: Vec<_> = futures::stream::iter(opening).buffer_unordered(OPENING).try_collect().await?;
    let payload = vec![b'r'; options.reply_bytes];
    let mut answering = JoinSet::new();
    for (receiver, sender) in opened {
        answering.spawn(answer(receiver, sender, payload.clone()));
    }
    println!("{READY}");
    answering.join_next().await.context("there are no responders")??
}

async fn answer(mut receiver: Receiver, mut sender: OwnedWriteHalf, payload: Vec<u8>) -> Result<()> {
    let mut out = Vec::new();
    loop {
        let asked = receiver.next(|said| match said {
            Said::Message { reply_to: Some(reply_to), .. } => Asked::Reply(reply_to.to_owned()),
            Said::Ping => Asked::Ping,
            Said::Message { reply_to: None, .. } | Said::Info | Said::Ok | Said::Pong => Asked::Nothing,
        });
        out.clear();
        match asked.await? {
            Asked::Reply(reply_to) => publish(&mut out, &reply_to, "", &payload),
            Asked::Ping => out.extend_from_slice(b"PONG\r\n"),
            Asked::Nothing => continue,
        }
        sender.write_all(&out).await?;
    }
}

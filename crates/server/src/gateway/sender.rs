//! Sends messages to one agent, signed if the agent verifies them.
//!
//! Promised: what is queued between two flushes has one signature, unless it is a lot; a heartbeat has none, and
//! neither has a refusal: an agent accepts those from anybody who carries its session.
//! Absent: what to send, and when.

use std::sync::Arc;

use proctor_pki::CommandSeal;
use proctor_wire::{FromAgent, FromServer, ITEMS_MAX, LinkMessage, Outgoing, count_part, encode_part, hang_up, rejoin};

use super::Connection;
use super::session::{Ended, Receiver};
use super::signing::Signing;

/// Messages are signed together up to this size; a larger one is signed alone.
const SIGNED_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct Sender {
    frames: Outgoing<Connection, FromAgent, FromServer>,
    sealing: Option<Sealing>,
}

/// Of an agent that verifies.
#[derive(Debug)]
struct Sealing {
    signing: Arc<Signing>,
    seal: CommandSeal,
    unsigned: Vec<Vec<u8>>,
    bytes: usize,
    items: usize,
}

impl Sender {
    pub(super) fn new(frames: Outgoing<Connection, FromAgent, FromServer>) -> Self {
        Self { frames, sealing: None }
    }

    /// From now on what is queued is signed.
    pub(super) fn sign(&mut self, signing: Arc<Signing>, seal: CommandSeal) {
        self.sealing = Some(Sealing { signing, seal, unsigned: Vec::new(), bytes: 0, items: 0 });
    }

    /// To be followed by a flush.
    pub(super) async fn feed(&mut self, message: FromServer) -> Result<(), Ended> {
        let Some(sealing) = &mut self.sealing else { return Ok(self.frames.feed(message).await?) };
        let part = encode_part(message);
        let items = count_part(&part)?;
        let is_much = sealing.bytes + part.len() > SIGNED_BYTES_MAX || sealing.items + items > ITEMS_MAX;
        if is_much && let Some(full) = sealing.take().await? {
            self.frames.feed(full).await?;
        }
        sealing.bytes += part.len();
        sealing.items += items;
        sealing.unsigned.push(part);
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<(), Ended> {
        if let Some(sealing) = &mut self.sealing
            && let Some(signed) = sealing.take().await?
        {
            self.frames.feed(signed).await?;
        }
        Ok(self.frames.flush().await?)
    }

    /// Without a signature: a welcome, which has its own, a beat or a refusal.
    pub(super) async fn send_plain(&mut self, message: FromServer) -> Result<(), Ended> {
        debug_assert!(message.signed().is_none());
        Ok(self.frames.send(message).await?)
    }

    /// Sends the last message of a connection, so that it arrives.
    pub(super) async fn end_with(mut self, message: FromServer, receiver: Receiver) {
        if self.send_plain(message).await.is_err() {
            return;
        }
        match rejoin(self.frames, receiver) {
            Some(Connection::Direct(tls)) => hang_up(tls).await,
            // The end of a stream goes out behind what was said on it.
            Some(Connection::Relayed(_)) | None => {}
        }
    }
}

impl Sealing {
    /// What was queued; also nothing, if the agent must learn of a new signing key.
    async fn take(&mut self) -> Result<Option<FromServer>, Ended> {
        let signer = self.signing.signer();
        if self.unsigned.is_empty() && !self.seal.has_news(&signer) {
            return Ok(None);
        }
        (self.bytes, self.items) = (0, 0);
        let unsigned = self.seal.prepare(&signer, std::mem::take(&mut self.unsigned));
        let signed = self.signing.sign(signer, unsigned).await.map_err(Ended::NotSigned)?;
        Ok(Some(FromServer::Signed(signed)))
    }
}

//! Sends messages to the server, signed if the server asks for it.
//!
//! Promised: what is queued between two flushes has one signature, unless it is a lot. A message that no frame can
//! carry is skipped before signing: the next session would fail on it too. A signed message has a sequence number, so
//! if it cannot be sent the session ends.
//! Absent: what to send, and when.

use std::sync::Arc;

use proctor_pki::ReportSeal;
use proctor_wire::{
    FRAME_BYTES_MAX, FromAgent, FromServer, ITEMS_MAX, Lost, Outgoing, WireError, count_part, encode_part,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::identity::Identity;

/// Messages are signed together up to this size; a larger one is signed alone.
const SIGNED_BYTES_MAX: usize = 32 * 1024;
/// What a signature and its envelope may take of a frame.
const SIGNATURE_ROOM: usize = 1024;

pub(crate) struct ReportSender<S> {
    frames: Outgoing<S, FromServer, FromAgent>,
    sealing: Option<Sealing>,
}

pub(crate) struct Sealing {
    pub(crate) seal: ReportSeal,
    pub(crate) identity: Arc<Identity>,
    unsigned: Vec<Vec<u8>>,
    bytes: usize,
    items: usize,
}

impl Sealing {
    pub(crate) fn new(seal: ReportSeal, identity: Arc<Identity>) -> Self {
        Self { seal, identity, unsigned: Vec::new(), bytes: 0, items: 0 }
    }

    /// Puts a message to those that are signed next; returns those that had to go before it.
    fn add(&mut self, message: FromAgent) -> Result<Option<FromAgent>, proctor_pki::PkiError> {
        let part = encode_part(message);
        let items = match items_of(&part) {
            Ok(items) => items,
            Err(error) => {
                left_out(&error);
                return Ok(None);
            }
        };
        let is_much = self.bytes + part.len() > SIGNED_BYTES_MAX || self.items + items > ITEMS_MAX;
        let full = if is_much { self.take()? } else { None };
        self.bytes += part.len();
        self.items += items;
        self.unsigned.push(part);
        Ok(full)
    }

    pub(crate) fn take(&mut self) -> Result<Option<FromAgent>, proctor_pki::PkiError> {
        if self.unsigned.is_empty() {
            return Ok(None);
        }
        (self.bytes, self.items) = (0, 0);
        let signed = self.seal.seal(&self.identity.key, std::mem::take(&mut self.unsigned))?;
        Ok(Some(FromAgent::Signed(signed)))
    }

    /// One message, signed alone.
    pub(crate) fn seal(&mut self, message: FromAgent) -> Result<FromAgent, proctor_pki::PkiError> {
        Ok(FromAgent::Signed(self.seal.seal(&self.identity.key, vec![encode_part(message)])?))
    }
}

/// Of a message that one frame can carry with its signature.
fn items_of(part: &[u8]) -> Result<usize, WireError> {
    if part.len() > FRAME_BYTES_MAX - SIGNATURE_ROOM {
        return Err(WireError::FrameTooLarge { bytes_max: FRAME_BYTES_MAX });
    }
    count_part(part)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSent {
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("cannot sign a report")]
    Sign(#[from] proctor_pki::PkiError),
}

impl<S: AsyncRead + AsyncWrite + Unpin> ReportSender<S> {
    pub(crate) fn new(frames: Outgoing<S, FromServer, FromAgent>, sealing: Option<Sealing>) -> Self {
        Self { frames, sealing }
    }

    /// Must be followed by a flush. A heartbeat has no signature: it says nothing that a carrier could not say.
    pub(crate) async fn feed(&mut self, message: FromAgent) -> Result<(), NotSent> {
        let message = match (&mut self.sealing, message) {
            (Some(_), FromAgent::Beat) => Some(FromAgent::Beat),
            (Some(sealing), message) => sealing.add(message)?,
            (None, message) => Some(message),
        };
        match message {
            Some(message) => self.feed_frame(message).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), NotSent> {
        if let Some(signed) = self.sealing.as_mut().map(Sealing::take).transpose()?.flatten() {
            self.feed_frame(signed).await?;
        }
        Ok(self.frames.flush().await?)
    }

    async fn feed_frame(&mut self, message: FromAgent) -> Result<(), NotSent> {
        // Its number would be missing.
        let is_signed = matches!(message, FromAgent::Signed(_));
        match self.frames.feed(message).await {
            Err(Lost::Broken(error @ (WireError::FrameTooLarge { .. } | WireError::TooManyItems { .. })))
                if !is_signed =>
            {
                left_out(&error);
                Ok(())
            }
            fed => Ok(fed?),
        }
    }
}

fn left_out(error: &WireError) {
    tracing::error!(%error, "message too large, dropped");
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use proctor_model::{AgentId, BootId, HostKey};
    use proctor_pki::{HelloTerms, SessionTerms};
    use proctor_wire::{AgentCodec, Counted, ServerCodec, ends, framed};

    use super::*;

    fn sealing(dir: &tempfile::TempDir) -> Sealing {
        let (agent, boot): (AgentId, _) = ("a-1".parse().unwrap(), BootId::from("boot"));
        let host: HostKey = "0:10.0.0.1".parse().unwrap();
        Identity::key(dir.path()).unwrap();
        Identity::save(dir.path(), &agent, host, "", "").unwrap();
        let terms = SessionTerms {
            agent: &agent,
            challenge: &[7; 32],
            epoch: 1,
            control_epoch: 1,
            beat_interval_ms: 1,
            server_time_ms: 1,
            signed_reports: true,
            state_known: false,
            hello: HelloTerms { boot: &boot, nonce: b"run", seen_generation: 0, seen_epoch: None },
        };
        Sealing::new(ReportSeal::new(&terms), Arc::new(Identity::load(dir.path()).unwrap().unwrap()))
    }

    fn observed(count: usize) -> FromAgent {
        FromAgent::Observed { observations: vec![("web/nginx".parse().unwrap(), Default::default()); count] }
    }

    #[test]
    fn a_report_with_too_many_items_is_left_out_before_it_has_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut sealing = sealing(&dir);

        assert!(sealing.add(observed(ITEMS_MAX + 1)).unwrap().is_none());
        assert!(sealing.take().unwrap().is_none());
        assert!(sealing.add(observed(1)).unwrap().is_none());

        let Some(FromAgent::Signed(signed)) = sealing.take().unwrap() else { panic!("signed") };
        assert_eq!((signed.sequence, signed.messages.len()), (0, 1));
    }

    #[tokio::test]
    async fn a_report_that_is_too_large_is_left_out_and_the_next_one_sent() {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let stream = Counted::new(near);
        let counters = stream.counters();
        let (frames, _receiver) = ends(framed(stream, AgentCodec::new()), counters);
        let mut sender = ReportSender::new(frames, None);

        sender.feed(observed(ITEMS_MAX + 1)).await.unwrap();
        sender.feed(observed(1)).await.unwrap();
        sender.feed(observed(ITEMS_MAX + 1)).await.unwrap();
        sender.flush().await.unwrap();

        let heard = framed(far, ServerCodec::new()).next().await.unwrap().unwrap();
        assert_eq!(heard, observed(1));
    }

    #[tokio::test]
    async fn a_signed_report_that_cannot_be_sent_ends_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let stream = Counted::new(tokio::io::duplex(1024).0);
        let counters = stream.counters();
        let (frames, _receiver) = ends(framed(stream, AgentCodec::new()), counters);
        let mut sender = ReportSender::new(frames, None);
        let mut sealing = sealing(&dir);
        let too_large = vec![0; FRAME_BYTES_MAX];
        let signed = sealing.seal.seal(&sealing.identity.key, vec![too_large]).unwrap();

        sender.feed_frame(observed(ITEMS_MAX + 1)).await.unwrap();
        let fed = sender.feed_frame(FromAgent::Signed(signed)).await;

        assert!(matches!(fed, Err(NotSent::Lost(Lost::Broken(WireError::FrameTooLarge { .. })))), "{fed:?}");
    }
}

//! What goes to the server, signed where the server asks for it.
//!
//! Promised: what is fed between two flushes has one signature, unless it is much. A message that no frame can carry is
//! left out: the next session would fail on it too. Absent: what to say, and when.

use std::sync::Arc;

use proctor_pki::ReportSeal;
use proctor_wire::{FRAME_BYTES_MAX, FromAgent, FromServer, Lost, Outgoing, WireError, encode_part};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::identity::Identity;

/// Messages are signed together up to this; a larger one is signed alone.
const SIGNED_BYTES_MAX: usize = 32 * 1024;
/// What a signature and its surroundings may take of a frame.
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
}

impl Sealing {
    pub(crate) fn new(seal: ReportSeal, identity: Arc<Identity>) -> Self {
        Self { seal, identity, unsigned: Vec::new(), bytes: 0 }
    }

    /// Puts a message to those that are signed next; returns those that had to go before it.
    fn add(&mut self, message: FromAgent) -> Result<Option<FromAgent>, proctor_pki::PkiError> {
        let part = encode_part(message);
        if part.len() > FRAME_BYTES_MAX - SIGNATURE_ROOM {
            left_out(&WireError::FrameTooLarge { bytes_max: FRAME_BYTES_MAX });
            return Ok(None);
        }
        let is_much = self.bytes + part.len() > SIGNED_BYTES_MAX;
        let full = if is_much { self.take()? } else { None };
        self.bytes += part.len();
        self.unsigned.push(part);
        Ok(full)
    }

    pub(crate) fn take(&mut self) -> Result<Option<FromAgent>, proctor_pki::PkiError> {
        if self.unsigned.is_empty() {
            return Ok(None);
        }
        self.bytes = 0;
        let signed = self.seal.seal(&self.identity.key, std::mem::take(&mut self.unsigned))?;
        Ok(Some(FromAgent::Signed(signed)))
    }

    /// One message, signed alone.
    pub(crate) fn seal(&mut self, message: FromAgent) -> Result<FromAgent, proctor_pki::PkiError> {
        Ok(FromAgent::Signed(self.seal.seal(&self.identity.key, vec![encode_part(message)])?))
    }
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

    /// To be followed by a flush. A beat has no signature: it says nothing that a carrier could not say.
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
        match self.frames.feed(message).await {
            Err(Lost::Broken(error @ (WireError::FrameTooLarge { .. } | WireError::TooManyItems { .. }))) => {
                left_out(&error);
                Ok(())
            }
            fed => Ok(fed?),
        }
    }
}

fn left_out(error: &WireError) {
    tracing::error!(%error, "left out a message that is too large");
}

//! Messages inside a signed one.

use prost::Message;

use crate::codec::check_items;
use crate::convert::{LinkMessage, SIGNATURE_BYTES_MAX, signer_certificate};
use crate::message::Signed;
use crate::value::{Skipped, bounded};
use crate::{WireError, proto};

const HASH_BYTES: usize = 32;
/// Enough for a tree of four billion leaves.
const PATH_MAX: usize = 32;

/// For [`Signed::messages`]. These bytes are what is signed, so nobody has to agree on an encoding.
pub fn encode_part<M: LinkMessage>(message: M) -> Vec<u8> {
    message.into_proto().encode_to_vec()
}

/// The number of items of a message of [`encode_part`]; a frame allows [`crate::ITEMS_MAX`] in all its messages
/// together. The codec does not look inside when it writes.
pub fn count_part(part: &[u8]) -> Result<usize, WireError> {
    check_items(part)
}

/// A message out of [`Signed::messages`], after its signature was verified. Reports what it left out.
pub fn decode_part<M: LinkMessage>(bytes: &[u8], skipped: &mut Option<Skipped>) -> Result<M, WireError> {
    check_items(bytes)?;
    let message = M::from_proto(M::Proto::decode(bytes)?, skipped)?;
    if message.signed().is_some() { Err(WireError::Nested) } else { Ok(message) }
}

pub(crate) fn signed_to(signed: Signed) -> proto::Signed {
    let Signed { sequence, messages, signature, leaf, path, signer_der } = signed;
    proto::Signed { sequence, messages, signature, leaf, path: path.concat(), signer_der }
}

pub(crate) fn signed_from(signed: proto::Signed) -> Result<Signed, WireError> {
    let path = bounded("path of a signature", signed.path, PATH_MAX * HASH_BYTES)?;
    let (path, []) = path.as_chunks::<HASH_BYTES>() else {
        return Err(WireError::Missing { what: "the end of the path of a signature" });
    };
    Ok(Signed {
        sequence: signed.sequence,
        messages: signed.messages,
        signature: bounded("signature", signed.signature, SIGNATURE_BYTES_MAX)?,
        leaf: signed.leaf,
        path: path.to_vec(),
        signer_der: signed.signer_der.map(signer_certificate).transpose()?,
    })
}

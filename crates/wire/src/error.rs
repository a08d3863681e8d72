//! Why a frame could not be read or written.

use proctor_model::FieldError;

/// After one of these from a decoder the session ends: the stream can no longer be interpreted.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("cannot use the connection")]
    Io(#[from] std::io::Error),
    #[error("a frame is larger than {bytes_max} bytes")]
    FrameTooLarge { bytes_max: usize },
    #[error("a frame has more than {items_max} items")]
    TooManyItems { items_max: usize },
    #[error("the stream ends inside a frame")]
    Truncated,
    #[error("cannot decode a frame")]
    Decode(#[from] prost::DecodeError),
    #[error("{what} is missing")]
    Missing { what: &'static str },
    /// A value of a newer version, or (number 0) one that the peer left out.
    #[error("{what} has the unknown value {number}")]
    Unknown { what: &'static str, number: i32 },
    #[error("{what} is longer than {bytes_max} bytes")]
    TooLong { what: &'static str, bytes_max: usize },
    #[error("{what} is not a finite number")]
    NotFinite { what: &'static str },
    #[error("{what} is not a time between 1970 and 9999")]
    NoTime { what: &'static str },
    #[error("{what} is not a valid fraction of the machine")]
    NoShare { what: &'static str },
    #[error("{what} has {bytes} bytes, an IP address has 4 or 16")]
    Address { what: &'static str, bytes: usize },
    #[error("a signed message is inside another one")]
    Nested,
    #[error("cannot accept {what}")]
    Invalid { what: &'static str, source: FieldError },
    #[error("cannot read a spec")]
    Spec { source: serde_json::Error },
    #[error("cannot read the details of an event")]
    Details { source: serde_json::Error },
}

//! The protocol of the link between agents and servers: messages, and frames that carry them.
//!
//! Promised: what the codecs yield is made of valid model types; a frame is at most [`FRAME_BYTES_MAX`] bytes with
//! at most [`ITEMS_MAX`] items; no input makes a codec panic; a message kind of a newer peer yields `Unknown`, and
//! a value that cannot be parsed (an unknown enum number, an oversized text) costs only its own item: it is passed
//! on as far as it makes sense, or skipped; what is no frame or no message is a [`WireError`], after which the
//! stream is unusable; what is sent is truncated to its bounds; Debug never shows a token's secret.
//!
//! Between a relay and a server the streams of many agents share a connection (`mux`), each with its own credit.
//!
//! A session's ends wait for a peer as long as bytes move.
//!
//! Absent: sockets, TLS, and any rule about which message may follow which.
//! Durations are sent in whole milliseconds; fractions are dropped.
//!
//! Start at `message` (as the code sees it) and `proto/link.proto` (as the wire does).

mod byte_counter;
mod codec;
mod convert;
mod ends;
mod error;
mod event;
mod frame_budget;
mod hang_up;
mod log;
mod message;
mod mux;
mod opening_pace;
mod passage;
mod relay_frame;
mod signed;
mod spec_text;
mod upgrade;
mod usage;
mod value;
mod waits;

pub use byte_counter::{Counted, Counters};
pub use codec::{
    AgentCodec, FRAME_BYTES_MAX, FRAME_BYTES_MAX_ENROL, ITEMS_MAX, MessageCodec, ServerCodec, SkippedItems,
};
pub use convert::LinkMessage;
pub use ends::{Incoming, Lost, NoSession, Outgoing, ends, framed, rejoin};
pub use error::WireError;
pub use frame_budget::{Budgeted, FrameBudget};
pub use hang_up::{HANG_UP_LIMIT, hang_up};
pub use message::{
    Announced, Assign, FromAgent, FromServer, RegisteredPart, Signed, Trusted, UpgradeOrder, WelcomeProof,
};
pub use mux::{MuxError, MuxStream, STREAM_BUFFER_BYTES, STREAM_WINDOW_BYTES, Streams};
pub use opening_pace::{OPENINGS_AT_ONCE, OPENINGS_PER_SECOND, OpeningPace, RELAY_STREAMS_MAX};
pub use passage::{FrameFilter, beat_frame, beat_reply_frame};
pub use relay_frame::{RelayCodec, RelayFrame};
pub use signed::{count_part, decode_part, encode_part};
pub use spec_text::spec_bytes;
pub use upgrade::BUILD_PART_BYTES_MAX;
pub use value::Skipped;
pub use waits::{
    ABSENT_WAIT_MAX, AREA_RETURN_MAX, BEFORE_TLS_MAX, CONNECT_LIMIT, CONNECT_LIMIT_OF_SEVERAL, ENDPOINTS_MAX,
    REFUSED_WAIT_MAX, REFUSED_WAIT_MIN, RETURN_SPREAD_MAX, SILENT_BEATS_MAX, STAY_AWAY_MAX, return_max, stay_away_max,
};

/// The ALPN name of a session of an enrolled agent, which presents its certificate.
pub const ALPN_SESSION: &[u8] = b"proctor/1";
/// The ALPN name of an enrolment, where the agent has no certificate yet.
pub const ALPN_ENROL: &[u8] = b"proctor-enrol/1";

/// The ALPN name of a relay, which presents its certificate and carries the sessions of agents.
pub const ALPN_RELAY: &[u8] = b"proctor-relay/1";

/// What prost generates from `proto/link.proto`. Only for code that inspects raw frames; everyone else uses
/// [`FromAgent`] and [`FromServer`].
#[allow(clippy::all, clippy::use_self, unreachable_pub, reason = "generated code")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/proctor.link.v1.rs"));

    impl std::fmt::Debug for Enrol {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Enrol")
                .field("token_id", &self.token_id)
                .field("agent", &self.agent)
                .field("host", &self.host)
                .finish_non_exhaustive()
        }
    }

    impl std::fmt::Debug for EnrolRelay {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("EnrolRelay")
                .field("token_id", &self.token_id)
                .field("cloud", &self.cloud)
                .finish_non_exhaustive()
        }
    }
}

/// What prost generates from `proto/relay.proto`.
#[allow(clippy::all, clippy::use_self, unreachable_pub, reason = "generated code")]
mod relay_proto {
    include!(concat!(env!("OUT_DIR"), "/proctor.relay.v1.rs"));
}

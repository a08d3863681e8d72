//! What a relay and a server send to each other.

use std::time::Duration;

use crate::WireError;
use crate::codec::MessageCodec;
use crate::convert::{CERTIFICATE_BYTES_MAX, LinkMessage, announced, certificate, certificate_request, trusted};
use crate::message::{Announced, Signed, Trusted};
use crate::relay_proto::{self as proto, relay_frame::Kind};
use crate::value::{Skipped, bounded, millis, reason_text, short};

/// Either end of the connection between a relay and a server.
pub type RelayCodec = MessageCodec<RelayFrame, RelayFrame>;

/// Heartbeats per frame; the rest follows in the next one.
pub(crate) const BEATS_MAX: usize = 8 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayFrame {
    /// The relay's first message.
    Hello {
        version: String,
    },
    /// The server's answer to it.
    Welcome {
        beats_interval: Duration,
    },
    /// With `retry` false, only people can resolve it.
    Refused {
        reason: String,
        retry: bool,
    },
    /// By the relay: an agent with this certificate has connected.
    Open {
        stream: u32,
        certificate_der: Vec<u8>,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
    },
    /// The receiver has room for so many bytes more.
    Credit {
        stream: u32,
        bytes: u32,
    },
    Close {
        stream: u32,
    },
    /// By the relay: these agents have sent a heartbeat. The server does not answer it.
    Beats {
        streams: Vec<u32>,
    },
    Renew {
        csr_der: Vec<u8>,
    },
    Renewed {
        certificate_pem: String,
    },
    /// By the server: these authorities are trusted from now on, and no others.
    Authorities(Announced),
    /// The relay's answer; sent again whenever it changes.
    Trusted(Trusted),
    /// A kind of a newer version: skip it.
    Unknown,
}

impl RelayFrame {
    /// Streams in any order, in as many frames as needed; one if there are none.
    pub fn beats(mut streams: Vec<u32>) -> Vec<Self> {
        if streams.is_empty() {
            return vec![Self::Beats { streams }];
        }
        streams.sort_unstable();
        streams.dedup();
        streams.chunks(BEATS_MAX).map(|chunk| Self::Beats { streams: chunk.to_vec() }).collect()
    }
}

impl LinkMessage for RelayFrame {
    type Proto = proto::RelayFrame;

    fn into_proto(self) -> proto::RelayFrame {
        let kind = match self {
            Self::Hello { version } => Kind::Hello(proto::RelayHello { version }),
            Self::Welcome { beats_interval } => {
                Kind::Welcome(proto::RelayWelcome { beats_interval_ms: millis(beats_interval) })
            }
            Self::Refused { reason, retry } => Kind::Refused(proto::RelayRefused { reason, retry }),
            Self::Open { stream, certificate_der } => Kind::Open(proto::Open { stream, certificate_der }),
            Self::Data { stream, bytes } => Kind::Data(proto::Data { stream, bytes }),
            Self::Credit { stream, bytes } => Kind::Credit(proto::Credit { stream, bytes }),
            Self::Close { stream } => Kind::Close(proto::Close { stream }),
            Self::Beats { streams } => Kind::Beats(proto::Beats { streams: differences(streams) }),
            Self::Renew { csr_der } => Kind::Renew(proto::RelayRenew { csr_der }),
            Self::Renewed { certificate_pem } => Kind::Renewed(proto::RelayRenewed { certificate_pem }),
            Self::Authorities(Announced { authorities_pem, issuing }) => {
                Kind::Authorities(proto::RelayAuthorities { authorities_pem, issuing })
            }
            Self::Trusted(Trusted { authorities, certified_by }) => {
                Kind::Trusted(proto::RelayTrusted { authorities, certified_by })
            }
            Self::Unknown => return proto::RelayFrame { kind: None },
        };
        proto::RelayFrame { kind: Some(kind) }
    }

    fn from_proto(frame: proto::RelayFrame, _: &mut Option<Skipped>) -> Result<Self, WireError> {
        Ok(match frame.kind {
            None => Self::Unknown,
            Some(Kind::Hello(hello)) => Self::Hello { version: short("version", hello.version)? },
            Some(Kind::Welcome(welcome)) => {
                Self::Welcome { beats_interval: Duration::from_millis(welcome.beats_interval_ms) }
            }
            Some(Kind::Refused(refused)) => Self::Refused { reason: reason_text(refused.reason), retry: refused.retry },
            Some(Kind::Open(open)) => Self::Open {
                stream: open.stream,
                certificate_der: bounded("certificate", open.certificate_der, CERTIFICATE_BYTES_MAX)?,
            },
            Some(Kind::Data(data)) => Self::Data { stream: data.stream, bytes: data.bytes },
            Some(Kind::Credit(credit)) => Self::Credit { stream: credit.stream, bytes: credit.bytes },
            Some(Kind::Close(close)) => Self::Close { stream: close.stream },
            Some(Kind::Beats(beats)) => Self::Beats { streams: sums(beats.streams)? },
            Some(Kind::Renew(renew)) => Self::Renew { csr_der: certificate_request(renew.csr_der)? },
            Some(Kind::Renewed(renewed)) => Self::Renewed { certificate_pem: certificate(renewed.certificate_pem)? },
            Some(Kind::Authorities(proto::RelayAuthorities { authorities_pem, issuing })) => {
                Self::Authorities(announced(authorities_pem, issuing)?)
            }
            Some(Kind::Trusted(proto::RelayTrusted { authorities, certified_by })) => {
                Self::Trusted(trusted(authorities, certified_by)?)
            }
        })
    }

    fn signed(&self) -> Option<&Signed> {
        None
    }
}

/// Delta-encoded ascending numbers: most become one byte.
fn differences(mut streams: Vec<u32>) -> Vec<u32> {
    let mut before = 0;
    for stream in &mut streams {
        *stream = stream.wrapping_sub(std::mem::replace(&mut before, *stream));
    }
    streams
}

fn sums(mut differences: Vec<u32>) -> Result<Vec<u32>, WireError> {
    let mut sum = 0_u32;
    for difference in &mut differences {
        sum = sum.checked_add(*difference).ok_or(WireError::Missing { what: "an ascending stream number" })?;
        *difference = sum;
    }
    Ok(differences)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio_util::codec::{Decoder, Encoder};

    use super::*;

    fn round_trip(frame: RelayFrame) -> RelayFrame {
        let mut bytes = BytesMut::new();
        RelayCodec::relay().encode(frame, &mut bytes).unwrap();
        RelayCodec::relay().decode(&mut bytes).unwrap().unwrap()
    }

    #[test]
    fn frames_survive_the_wire() {
        let frames = [
            RelayFrame::Hello { version: "1".to_owned() },
            RelayFrame::Welcome { beats_interval: Duration::from_secs(1) },
            RelayFrame::Refused { reason: "no".to_owned(), retry: true },
            RelayFrame::Open { stream: 7, certificate_der: vec![1, 2] },
            RelayFrame::Data { stream: 7, bytes: vec![3; 16 * 1024] },
            RelayFrame::Credit { stream: 7, bytes: 9 },
            RelayFrame::Close { stream: 7 },
            RelayFrame::Beats { streams: vec![1, 2, 900, u32::MAX] },
            RelayFrame::Renew { csr_der: vec![4] },
            RelayFrame::Renewed { certificate_pem: "pem".to_owned() },
            RelayFrame::Authorities(Announced { authorities_pem: "pem".to_owned(), issuing: "ab".to_owned() }),
            RelayFrame::Trusted(Trusted { authorities: vec!["ab".to_owned()], certified_by: "ab".to_owned() }),
        ];
        for frame in frames {
            assert_eq!(round_trip(frame.clone()), frame);
        }
    }

    #[test]
    fn a_reason_is_cut_to_what_a_log_can_take() {
        let frame = round_trip(RelayFrame::Refused { reason: "é".repeat(40_000), retry: false });

        let RelayFrame::Refused { reason, .. } = frame else { panic!("{frame:?}") };
        assert_eq!(reason, "é".repeat(512));
    }

    #[test]
    fn heartbeats_of_many_agents_take_several_frames_and_each_fits() {
        let streams: Vec<u32> = (0..20_000).rev().map(|index| u32::MAX - index * 100_000).collect();

        let frames = RelayFrame::beats(streams.clone());

        let told: Vec<u32> = frames
            .into_iter()
            .flat_map(|frame| {
                let RelayFrame::Beats { streams } = round_trip(frame) else { panic!("beats") };
                streams
            })
            .collect();
        assert_eq!(told.len(), streams.len());
        assert!(told.is_sorted());
    }

    #[test]
    fn numbers_that_overflow_are_no_frame() {
        assert!(sums(vec![u32::MAX, 1]).is_err());
    }
}

//! The trace of the caller, from the W3C header `traceparent`.

use std::str::FromStr;

/// A span of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: u128,
    pub span: u64,
}

/// Not a valid header; it is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a traceparent is VERSION-TRACE-SPAN-FLAGS in lower-case hexadecimal")]
pub struct NoTraceParent;

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut pieces = text.trim().split('-');
        let mut next = |digits: usize| {
            let piece = pieces.next().filter(|piece| piece.len() == digits).ok_or(NoTraceParent)?;
            let is_hex = piece.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            is_hex.then_some(piece).ok_or(NoTraceParent)
        };
        let (version, trace, span, _flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Later versions may append more.
        if version == "ff" || (version == "00" && pieces.next().is_some()) {
            return Err(NoTraceParent);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| NoTraceParent)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| NoTraceParent)?;
        if trace == 0 || span == 0 { Err(NoTraceParent) } else { Ok(Self { trace, span }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_the_standard_is_read_and_any_other_is_none() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let later = good.replacen("00", "01", 1) + "-more";
        let (upper, long, last) = (good.to_uppercase(), format!("{good}-x"), good.replacen("00", "ff", 1));
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let expected = TraceParent { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span: 0x00f0_67aa_0ba9_02b7 };

        assert_eq!([good, &later].map(str::parse), [Ok(expected), Ok(expected)]);
        for bad in ["", "00", &upper, &long, &last, zero, "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(bad.parse::<TraceParent>(), Err(NoTraceParent), "{bad}");
        }
    }
}

//! A percentage in 15 bits, with one bit to spare: a half-precision float without its sign.
//!
//! Promised: a decoded value is within 0.1 % of the original (or 0.0001 if it is smaller than that); a larger value
//! never has a smaller code, so the order survives.
//! Absent: numbers outside 0 to 100.

/// The bit that a code does not use.
pub(super) const FLAG: u16 = 0x8000;
/// No share; no code is like it.
pub(super) const EMPTY: u16 = 0xFFFF;

const BITS_DROPPED: u32 = 13;
/// Between the exponents of the two formats.
const DOWN: f32 = f32::from_bits(0x0780_0000);
const UP: f32 = f32::from_bits(0x7780_0000);

/// NaN counts as 0.
pub(super) fn encode(percent: f32) -> u16 {
    let percent = if percent.is_nan() { 0.0 } else { percent.clamp(0.0, 100.0) };
    let bits = (percent * DOWN).to_bits();
    let is_odd = (bits >> BITS_DROPPED) & 1;
    let code = (bits + (1 << (BITS_DROPPED - 1)) - 1 + is_odd) >> BITS_DROPPED;
    u16::try_from(code).unwrap_or(0)
}

/// Whatever the bits are, a share from 0 to 100: they may come from a damaged file.
pub(super) fn decode(code: u16) -> f32 {
    let number = f32::from_bits(u32::from(code & !FLAG) << BITS_DROPPED) * UP;
    if number.is_nan() { 0.0 } else { number.min(100.0) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_share_comes_back_nearly_as_it_was(percent in 0.0_f32..=100.0) {
            let back = decode(encode(percent));

            prop_assert!((back - percent).abs() <= (percent * 0.001).max(0.0001), "{percent} {back}");
            prop_assert_eq!(encode(percent) & FLAG, 0);
        }

        #[test]
        fn an_order_survives(one in 0.0_f32..=100.0, other in 0.0_f32..=100.0) {
            prop_assert!(one > other || encode(one) <= encode(other));
        }

        #[test]
        fn any_bits_are_a_share(code in any::<u16>()) {
            prop_assert!((0.0..=100.0).contains(&decode(code)));
        }
    }

    #[test]
    fn what_is_no_share_becomes_one() {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -3.0, 1e9];

        assert_eq!(odd.map(|number| decode(encode(number))), [0.0, 100.0, 0.0, 0.0, 100.0]);
        assert_ne!(encode(100.0) | FLAG, EMPTY);
    }
}

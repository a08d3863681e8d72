//! Seeded random numbers, so that a run can be repeated.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_evenly_between_0_and_1() {
        let (mut first, mut second) = (SeededRng::new(7), SeededRng::new(7));

        let mean = (0..10_000)
            .map(|_| {
                let unit = first.unit();
                assert!((0.0..1.0).contains(&unit));
                assert!((unit - second.unit()).abs() < f64::EPSILON);
                unit
            })
            .sum::<f64>()
            / 10_000.0;

        assert!((0.48..0.52).contains(&mean), "{mean}");
    }
}

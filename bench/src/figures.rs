//! Summaries of samples.

use std::time::Duration;

/// The sample at `part` (0.5 is the median) of the sorted samples.
pub(crate) fn quantile(samples: &[Duration], part: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}

pub(crate) fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

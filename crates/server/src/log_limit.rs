//! Lines that strangers cause: logged no faster than the log can take them.
//!
//! Promised: at most one line in [`PERIOD`], with how many were left out before it. Absent: what the lines say.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Unlogged>);

#[derive(Debug, Default)]
struct Unlogged {
    count: u64,
    logged_at: Option<Instant>,
}

impl LogLimit {
    /// How many lines were left out since the last one; None where this one is left out too.
    pub(crate) fn turn(&self, now: Instant) -> Option<u64> {
        let mut unlogged = self.0.lock();
        if unlogged.logged_at.is_some_and(|at| now.saturating_duration_since(at) < PERIOD) {
            unlogged.count += 1;
            return None;
        }
        unlogged.logged_at = Some(now);
        Some(std::mem::take(&mut unlogged.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_tells_how_many_were_left_out() {
        let (limit, now) = (LogLimit::default(), Instant::now());

        let turns = [0, 1, 999, 1000, 1001, 2000].map(|millis| limit.turn(now + Duration::from_millis(millis)));

        assert_eq!(turns, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}

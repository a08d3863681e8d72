//! The wall clock, which nothing else reads.

/// Unix milliseconds now.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn unix_millis() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

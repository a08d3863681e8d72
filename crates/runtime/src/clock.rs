//! The wall clock; nothing else reads it.

/// Unix milliseconds now.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn unix_millis() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

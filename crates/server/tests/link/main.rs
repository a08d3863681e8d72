//! Who may speak for a host, through real TLS connections: enrolment, sessions, copies of an agent's state,
//! revocation, and floods of unknown peers.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests: whatever is unexpected fails")]

mod fan_out;
mod flood;
mod identity;
mod presence;
mod relay;
mod relay_storm;
mod relay_support;
mod resync;
mod returning;
mod rotation;
mod signed;
mod storm;
mod support;

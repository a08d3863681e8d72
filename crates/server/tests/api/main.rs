//! The HTTP API against a real store: what callers send and what they get back.

#![allow(clippy::unwrap_used, reason = "helpers of tests; a failure should stop the test")]

mod agents;
mod audited;
mod auth;
mod backend;
mod bounds;
mod captured;
mod carried;
mod contract;
mod documented;
mod downloads;
mod envelopes;
mod errors;
mod exhaustion;
mod families;
mod groups;
mod hidden;
mod job;
mod limits;
mod matrix;
mod metrics;
mod mutated;
mod processes;
mod proofs;
mod proxied;
mod refusals;
mod retention;
mod rolling;
mod rolling_crash;
mod rolling_rights;
mod serving;
mod spec_calls;
mod support;
mod tasks;
mod traces;
mod upgrade_rights;

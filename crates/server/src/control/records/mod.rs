//! Administrators' data for the API layer: apps, users, roles, businesses, tokens, the audit log and the store
//! itself, one file per area.
//!
//! Promised: the API layer reads and changes the store only through these methods and those of the other areas of
//! control (`scripts/check-direction` enforces it).
//! Absent: permissions and audit entries, which `Control::administer` and the routes add; the caller has checked
//! them.

mod apps;
mod audit_log;
mod businesses;
mod join_tokens;
mod roles;
mod signing_key;
mod storage;
mod users;

/// What the store says of a change: made, or refused.
type Changed<T = ()> = proctor_store::Result<Result<T, proctor_store::Refusal>>;

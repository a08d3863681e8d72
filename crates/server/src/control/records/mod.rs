//! What administrators keep and the border asks for: apps, users, roles, businesses, tokens, the audit log and the store
//! itself, an area to a file.
//!
//! Promised: the border reads and changes the store through these methods and those of the other areas of control, never
//! by itself (`scripts/check-direction` looks). Absent: permissions and audit entries, which `Control::administer` and the
//! routes add; whoever calls has checked them.

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

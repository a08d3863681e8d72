//! Implements the traits of [`Store`](crate::Store), area by area: each call runs one function of its area on the
//! writer or on a reader.
//!
//! Absent: SQL, which is in the functions next to this folder. Start at `tasks`.

mod access;
mod audit;
mod events;
mod hosts;
mod processes;
mod relays;
mod tasks;
mod upgrades;
mod upkeep;

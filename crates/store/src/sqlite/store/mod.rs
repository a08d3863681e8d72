//! What [`Store`](crate::Store) promises, area by area: each call runs one function of its area on the writer
//! or on a reader.

mod access;
mod audit;
mod events;
mod hosts;
mod processes;
mod relays;
mod tasks;
mod upgrades;
mod upkeep;

//! The link as both ends see it.

mod frames;
mod round_trip;
mod slow;
mod strategies;

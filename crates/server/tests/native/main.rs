//! The native API over HTTP, on a real store, without sockets and agents.

#![allow(clippy::unwrap_used, reason = "helpers of tests; a failure should stop the test")]

mod access;
mod audit;
mod businesses;
mod change_plans;
mod first;
mod fleet;
mod logs;
mod maintenance;
mod openapi;
mod operations;
mod processes;
mod registration;
mod rights;
mod sentences;
mod session;
mod stream;
mod support;
mod task_control;
mod upgrades;
mod usage;
mod waiting;

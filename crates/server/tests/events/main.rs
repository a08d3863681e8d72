//! Events from an agent's session to the store, the API and webhooks, on a real store.

#![allow(clippy::unwrap_used, reason = "helpers of tests; a failure should stop the test")]

mod arriving;
mod reading;
mod receiver;
mod support;
mod webhooks;

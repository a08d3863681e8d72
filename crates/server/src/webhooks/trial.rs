//! Tests a webhook: one request marked as a test, and the result for whoever asked.
//!
//! Promised: the address is checked and the request is signed and timed out as for events. The webhook's cursor does
//! not move, and nothing is sent again. A webhook is tested at most once per [`PAUSE`], and at most [`UNDER_WAY_MAX`]
//! tests run at once.
//! Absent: the receiver's response beyond its status, which could be anything it can read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_store::Webhook;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::message::Message;
use super::{AddressFilter, SendError, Sender};
use crate::control::Control;

/// Between two tests of one webhook.
const PAUSE: Duration = Duration::from_secs(3);
const UNDER_WAY_MAX: usize = 4;

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTrial {
    /// The receiver's response; None if there was none.
    pub status: Option<u16>,
    /// Why events would not arrive; None if they would.
    pub error: Option<proctor_model::Message>,
    pub took: Duration,
}

/// Keeps tests rare.
#[derive(Debug)]
pub(crate) struct TrialLimits {
    /// When each was tested last; entries older than [`PAUSE`] are dropped, so it stays as short as the list of webhooks.
    last: Mutex<HashMap<Uuid, Instant>>,
    slots: Semaphore,
}

impl Default for TrialLimits {
    fn default() -> Self {
        Self { last: Mutex::default(), slots: Semaphore::new(UNDER_WAY_MAX) }
    }
}

impl TrialLimits {
    /// A permit to this webhook, which must exist; None where it has to wait.
    pub(crate) fn admit(&self, webhook: Uuid, now: Instant) -> Option<SemaphorePermit<'_>> {
        let mut last = self.last.lock();
        last.retain(|_, at| now.saturating_duration_since(*at) < PAUSE);
        if last.contains_key(&webhook) {
            return None;
        }
        let permit = self.slots.try_acquire().ok()?;
        last.insert(webhook, now);
        Some(permit)
    }
}

/// Sends one request that is marked as a test.
pub(crate) async fn send_trial(control: &Control, webhook: Webhook, reach: AddressFilter) -> WebhookTrial {
    let started = Instant::now();
    let message = Message::trial(webhook.format, webhook.report_id);
    let sent = match Sender::new(control.clone(), webhook, reach) {
        Ok(sender) => sender.post(message, true).await,
        Err(error) => Err(error),
    };
    let status = match &sent {
        Ok(status) | Err(SendError::Status(status)) => Some(status.as_u16()),
        Err(_) => None,
    };
    WebhookTrial { status, error: sent.err().map(|error| error.message()), took: started.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_one_webhook_are_rare_and_few_run_at_once() {
        let (limits, now) = (TrialLimits::default(), Instant::now());
        let first = Uuid::new_v4();

        let permit = limits.admit(first, now);

        assert!(permit.is_some());
        drop(permit);
        assert!(limits.admit(first, now + PAUSE - Duration::from_millis(1)).is_none());
        assert!(limits.admit(first, now + PAUSE).is_some());
        let later = now + 2 * PAUSE;
        let permits: Vec<_> = (0..UNDER_WAY_MAX).map(|_| limits.admit(Uuid::new_v4(), later)).collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(limits.admit(Uuid::new_v4(), later).is_none());
        drop(permits);
        assert!(limits.admit(Uuid::new_v4(), later).is_some());
    }
}

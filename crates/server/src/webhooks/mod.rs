//! Forwards events to webhooks.
//!
//! Promised: each webhook gets the events it subscribed to in order, at least once: its cursor advances only after a
//! successful request, and survives the server. A failing webhook is retried with growing backoff; events that are
//! older than a day by then are skipped, with a warning. Each webhook has its own task, so that a slow one delays no
//! other, and sends at most ten requests a second. Redirects are not followed: what is signed for one receiver is not
//! for another. Events of a host that was cordoned when they were stored are left out.
//! Absent: receivers' responses beyond their status, and any change of the events themselves.
//! Start at `message` (one request) and `address_filter`.

mod address_filter;
mod message;
mod sealed;
mod trial;
mod url;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{EventKind, messages};
use proctor_runtime::{Backoff, Tasks, chain, clock};
use proctor_store::{EventPage, EventQuery, Millis, StoredEvent, Webhook, WebhookFormat};
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::control::{Control, ControlError};
pub use address_filter::AddressFilter;
use message::Message;
pub(crate) use sealed::{seal, seal_old};
pub use trial::WebhookTrial;
pub(crate) use trial::{TrialLimits, send_trial};
pub use url::WebhookUrl;

/// The HMAC of the time stamp and the body, where the webhook has a secret.
pub const SIGNATURE: &str = "x-proctor-signature";
/// When the request was made, in Unix seconds; reject what is older than a few minutes.
pub const TIMESTAMP: &str = "x-proctor-timestamp";
/// The id of the webhook, in every request.
pub const WEBHOOK_ID: &str = "x-proctor-webhook";
/// In a request that an operator asked for to test the webhook, with the value `true`.
pub const TEST: &str = "x-proctor-test";

/// Events in one request.
const EVENTS_MAX: u32 = 100;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two requests of one webhook, and between two checks for new events.
const PACE: Duration = Duration::from_millis(100);
const RETRY_FLOOR: Duration = Duration::from_millis(200);
const RETRY_CEILING: Duration = Duration::from_secs(60);
const AGE_MAX_MS: Millis = 24 * 3600 * 1000;
/// A webhook that is not concerned keeps its cursor in memory and writes it this seldom.
const UNWRITTEN_MAX: u64 = 1000;
/// The list of webhooks is re-read at least this often; tools may write to the store directly.
const RECONCILE_PERIOD: Duration = Duration::from_secs(60);

/// Starts the forwarder, which ends with `tasks`.
pub fn start(control: &Control, reach: AddressFilter, tasks: &Tasks) {
    let forwarder = Forwarder { control: control.clone(), reach, tasks: tasks.clone(), running: HashMap::new() };
    tasks.spawn_critical("webhook forwarder", forwarder.run());
}

/// Keeps one sender for each webhook that there is.
struct Forwarder {
    control: Control,
    reach: AddressFilter,
    tasks: Tasks,
    running: HashMap<Uuid, CancellationToken>,
}

impl Forwarder {
    async fn run(mut self) {
        if let Err(error) = self.control.seal_old_webhooks().await {
            tracing::warn!(%error, "webhook secrets of an older version not sealed yet");
        }
        let mut changed = self.control.webhook_changes();
        loop {
            changed.mark_unchanged();
            match self.control.webhooks().await {
                Ok(webhooks) => self.reconcile(webhooks),
                Err(error) => tracing::warn!(%error, "cannot read webhooks"),
            }
            let _ = tokio::time::timeout(RECONCILE_PERIOD, changed.changed()).await;
        }
    }

    fn reconcile(&mut self, webhooks: Vec<Webhook>) {
        self.running.retain(|id, stop| {
            if stop.is_cancelled() {
                tracing::error!(webhook = %id, "webhook sender exited unexpectedly, restarting");
                return false;
            }
            let is_wanted = webhooks.iter().any(|webhook| webhook.id == *id);
            if !is_wanted {
                stop.cancel();
            }
            is_wanted
        });
        for webhook in webhooks {
            if self.running.contains_key(&webhook.id) {
                continue;
            }
            let id = webhook.id;
            match Sender::new(self.control.clone(), webhook, self.reach.clone()) {
                Ok(sender) => {
                    let stop = CancellationToken::new();
                    self.running.insert(id, stop.clone());
                    self.tasks.spawn("webhook", async move {
                        let _ended = stop.clone().drop_guard(); // also by a panic
                        let _ = stop.run_until_cancelled(sender.run()).await;
                    });
                }
                Err(error) => tracing::error!(webhook = %id, error = chain(&error), "cannot deliver to webhook"),
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("cannot read or write the store")]
    Control(#[from] ControlError),
    #[error("its secret cannot be opened: add the webhook again")]
    Sealed,
    #[error("cannot read the server's keys")]
    Keys(#[from] proctor_store::StoreError),
    #[error("its address cannot be used")]
    Url(#[from] proctor_model::FieldError),
    /// Without the address in the cause: it may hold a key.
    #[error("cannot reach the receiver")]
    Http(#[source] reqwest::Error),
    #[error("the receiver answered with {0}")]
    Status(StatusCode),
}

impl SendError {
    /// For who tries the webhook.
    fn message(&self) -> proctor_model::Message {
        match self {
            Self::Sealed => messages::webhook_secret_sealed(),
            Self::Status(status) => messages::webhook_answered(status),
            Self::Http(cause) => messages::webhook_unreachable(chain(cause)),
            Self::Url(cause) => messages::webhook_address_unusable(cause.problem.clone()),
            Self::Control(_) | Self::Keys(_) => messages::webhook_not_read(chain(self)),
        }
    }
}

impl From<reqwest::Error> for SendError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error.without_url())
    }
}

/// What a step of a sender found.
enum Step {
    Progress,
    NothingNew,
}

/// Brings events to one webhook.
struct Sender {
    control: Control,
    webhook: Webhook,
    url: WebhookUrl,
    http: reqwest::Client,
    pace: Interval,
    /// Never behind the cursor of `webhook`, which is the one in the store.
    cursor: u64,
}

impl Sender {
    fn new(control: Control, webhook: Webhook, reach: AddressFilter) -> Result<Self, SendError> {
        let url: WebhookUrl = webhook.url.parse()?;
        reach.check(&url)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            // A proxy would resolve names on its own, and reach what we must not.
            .no_proxy()
            .dns_resolver(Arc::new(reach))
            .redirect(reqwest::redirect::Policy::none());
        if url.is_plain() {
            // A machine without root certificates can still speak plain HTTP.
            builder = builder.tls_certs_only([]);
        }
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { control, cursor: webhook.cursor, webhook, url, http: builder.build()?, pace })
    }

    async fn run(mut self) {
        let mut backoff = Backoff::new(RETRY_FLOOR, RETRY_CEILING);
        let mut rung = self.control.event_changes();
        loop {
            self.pace.tick().await;
            rung.mark_unchanged();
            match self.step().await {
                Ok(Step::Progress) => backoff.reset(),
                Ok(Step::NothingNew) => drop(rung.changed().await),
                Err(error) => {
                    let wait = backoff.next_wait();
                    tracing::warn!(webhook = %self.webhook.id, error = chain(&error), ?wait, "events are waiting for delivery");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// At most one request. What fails is read again the next time.
    async fn step(&mut self) -> Result<Step, SendError> {
        let Some(query) = self.query() else { return Ok(Step::NothingNew) };
        let EventPage { events, next } = self.control.events(&query).await?;
        if events.is_empty() {
            self.cursor = next;
            if next >= self.webhook.cursor + UNWRITTEN_MAX {
                self.advance(next).await?;
            }
            return Ok(Step::NothingNew);
        }
        let young = self.skip_old(&events).await?;
        if young.is_empty() {
            return Ok(Step::Progress);
        }
        let message = Message::of(self.webhook.format, young, next);
        if let Some(body) = message.body {
            let posted = self.post(body, false).await;
            self.control.metrics().webhook(posted.is_ok(), young.len());
            posted?;
        }
        self.advance(message.cursor).await?;
        Ok(Step::Progress)
    }

    /// None if nothing can ever match.
    fn query(&self) -> Option<EventQuery> {
        let has_form = |kind: &EventKind| match self.webhook.format {
            WebhookFormat::Native => true,
            WebhookFormat::Gse => kind.gse_name().is_some(),
        };
        let asked = if self.webhook.kinds.is_empty() { &EventKind::ALL[..] } else { &self.webhook.kinds };
        let kinds: Vec<EventKind> = asked.iter().copied().filter(has_form).collect();
        (!kinds.is_empty()).then(|| EventQuery {
            after: Some(self.cursor),
            namespace: self.webhook.namespace.clone(),
            report_id: self.webhook.report_id,
            kinds,
            is_alarm: true,
            limit: EVENTS_MAX,
            ..EventQuery::default()
        })
    }

    /// Without the oldest, where those have waited for longer than a day.
    async fn skip_old<'a>(&mut self, events: &'a [StoredEvent]) -> Result<&'a [StoredEvent], SendError> {
        let limit = clock::unix_millis() - AGE_MAX_MS;
        let (old, young) = events.split_at(events.iter().take_while(|event| event.stored_at < limit).count());
        if let Some(last) = old.last() {
            let skipped = old.len();
            tracing::warn!(webhook = %self.webhook.id, skipped, "events could not be delivered within a day");
            self.advance(last.id).await?;
        }
        Ok(young)
    }

    /// The status of a receiver that took it.
    async fn post(&self, body: Vec<u8>, is_test: bool) -> Result<StatusCode, SendError> {
        let mut request = self
            .http
            .post(self.url.get().clone())
            .header(CONTENT_TYPE, "application/json")
            .header(WEBHOOK_ID, self.webhook.id.to_string());
        if is_test {
            request = request.header(TEST, "true");
        }
        if let Some(secret) = &self.webhook.secret {
            let timestamp = (clock::unix_millis() / 1000).to_string();
            let secret = sealed::open(&self.control.keys().await?, self.webhook.id, secret)?;
            request = request.header(SIGNATURE, message::signature(&secret, &timestamp, &body));
            request = request.header(TIMESTAMP, timestamp);
        }
        let status = request.body(body).send().await?.status();
        if status.is_success() { Ok(status) } else { Err(SendError::Status(status)) }
    }

    async fn advance(&mut self, cursor: u64) -> Result<(), SendError> {
        self.control.advance_webhook(self.webhook.id, cursor).await?;
        self.cursor = cursor;
        self.webhook.cursor = cursor;
        Ok(())
    }
}

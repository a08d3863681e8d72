//! Records of events and webhooks.

use std::num::NonZeroU32;

use proctor_model::{AgentId, Event, EventKind, FieldError, HostKey, Namespace, ProcessName, messages};
use uuid::Uuid;

use crate::Millis;

/// An event with where and when it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Rises with every event of all hosts; never reused.
    pub id: u64,
    /// The host that the agent served when the event was stored.
    pub host: HostKey,
    pub agent: AgentId,
    pub event: Event,
    pub stored_at: Millis,
    /// Its host was cordoned at the time: it raises no alarm.
    pub muted: bool,
}

/// A filter; a field that is None, or an empty list of kinds, does not narrow.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// The oldest with a higher id; None: the newest.
    pub after: Option<u64>,
    /// Only those with a lower id.
    pub before: Option<u64>,
    pub namespace: Option<Namespace>,
    pub name: Option<ProcessName>,
    pub agent: Option<AgentId>,
    pub report_id: Option<i64>,
    pub kinds: Vec<EventKind>,
    /// Only those that are not muted.
    pub is_alarm: bool,
    /// Stored from this moment on.
    pub since: Option<Millis>,
    /// Stored before this moment.
    pub until: Option<Millis>,
    pub limit: u32,
}

/// Which events to count, in steps of time.
#[derive(Clone, Debug)]
pub struct EventCountQuery {
    /// Its `after`, `before`, `since`, `until` and `limit` are ignored.
    pub which: EventQuery,
    /// When the first step begins.
    pub from: Millis,
    pub step_ms: NonZeroU32,
    pub steps: u32,
}

/// Some events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    pub events: Vec<StoredEvent>,
    /// `after` of the next query: the last event here or, if nothing more matches, the newest of all, so that
    /// events that do not match are not read again.
    pub next: u64,
}

/// A subscription to events.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    pub id: Uuid,
    pub url: String,
    pub namespace: Option<Namespace>,
    pub report_id: Option<i64>,
    /// Empty: every kind.
    pub kinds: Vec<EventKind>,
    pub format: WebhookFormat,
    /// Signs the requests; so it cannot be a hash.
    pub secret: Option<String>,
    pub created_at: Millis,
    /// Every event up to this id was delivered or does not match.
    pub cursor: u64,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("id", &self.id)
            .field("url", &self.url)
            .field("namespace", &self.namespace)
            .field("report_id", &self.report_id)
            .field("kinds", &self.kinds)
            .field("format", &self.format)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

/// The format in which a webhook gets its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookFormat {
    /// As GSE reports them: only the five kinds that GSE has.
    Gse,
    /// As the native API shows them.
    Native,
}

impl WebhookFormat {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gse => "gse",
            Self::Native => "native",
        }
    }
}

impl std::str::FromStr for WebhookFormat {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "gse" => Ok(Self::Gse),
            "native" => Ok(Self::Native),
            _ => Err(FieldError::new("format", messages::not_one_of(text, "gse, native"))),
        }
    }
}

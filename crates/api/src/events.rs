//! Events and webhooks.

use std::collections::BTreeMap;

use proctor_model::{AgentId, EventKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::OptionalFailure;

/// One event. Its times are in milliseconds, so that events within one second have an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Rises with every event of all hosts.
    pub id: u64,
    pub at_ms: i64,
    pub stored_at_ms: i64,
    pub host: String,
    pub agent: AgentId,
    /// The agent's own number; 0 for events of the server.
    pub sequence: u64,
    /// As text: a newer server may have types that an older client does not know.
    #[serde(rename = "type")]
    pub kind: String,
    /// `NAMESPACE/NAME`; null if no process is concerned.
    #[serde(default)]
    pub process: Option<String>,
    #[serde(default)]
    pub proc_name: String,
    #[serde(default)]
    pub report_id: Option<i64>,
    /// For people.
    pub content: String,
    /// The entry of `docs/messages.json` that the content is; absent if it is plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The arguments of the entry by name: text, or an object with its own `id` and `args`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub message_args: Option<serde_json::Map<String, serde_json::Value>>,
    /// For programs.
    #[serde(default)]
    pub details: BTreeMap<String, String>,
    /// Its host was cordoned: webhooks do not get it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub muted: bool,
}

/// Oldest first, except if `before` was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    pub events: Vec<EventView>,
    /// `after` of the next page; if `before` was given, `before` of the next page, and 0 if there is nothing older.
    pub next: u64,
}

/// Which events; a field that is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// The oldest after this id; absent: the newest.
    pub after: Option<u64>,
    /// Instead of `after`: the newest before this id, newest first.
    pub before: Option<u64>,
    /// Stored from this moment on.
    pub since_ms: Option<i64>,
    /// Stored before this moment.
    pub until_ms: Option<i64>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: Option<String>,
    /// Comma-separated types.
    #[serde(rename = "type")]
    pub kinds: Option<String>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
    /// If nothing matches, wait this many seconds for new events.
    #[param(maximum = 30)]
    pub wait: Option<u64>,
}

/// Which events are counted. A field that is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistogramQuery {
    /// Unix seconds; absent: 24 steps before `until`.
    pub since: Option<i64>,
    /// Unix seconds; absent: now.
    pub until: Option<i64>,
    /// Seconds; default 3600. At most 500 steps.
    #[param(minimum = 1, maximum = 604800)]
    pub step: Option<u32>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: Option<String>,
    /// Comma-separated types.
    #[serde(rename = "type")]
    pub kinds: Option<String>,
}

/// How many events were stored in each step of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventHistogram {
    /// Seconds.
    pub step: u32,
    /// When the first step begins, in Unix seconds.
    pub from: i64,
    /// For each type that occurred, one number per step.
    pub series: BTreeMap<String, Vec<u64>>,
}

/// Which events to stream; the header `Last-Event-ID` overrides `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// Events after this id; absent: only new ones.
    pub after: Option<u64>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: Option<String>,
    /// Comma-separated types.
    #[serde(rename = "type")]
    pub kinds: Option<String>,
}

/// As [`EventQuery`], with types instead of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// The oldest after this id; None: the newest.
    pub after: Option<u64>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub host: Option<String>,
    pub types: Vec<EventKind>,
    pub limit: Option<u32>,
}

impl EventFilter {
    pub fn to_query(&self, wait: Option<u64>) -> EventQuery {
        EventQuery {
            after: self.after,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            host: self.host.clone(),
            kinds: self.kinds(),
            limit: self.limit,
            wait,
            ..EventQuery::default()
        }
    }

    pub fn to_stream_query(&self) -> StreamQuery {
        StreamQuery {
            after: self.after,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            host: self.host.clone(),
            kinds: self.kinds(),
        }
    }

    fn kinds(&self) -> Option<String> {
        let names: Vec<&str> = self.types.iter().map(|kind| kind.as_str()).collect();
        (!names.is_empty()).then(|| names.join(","))
    }
}

/// A webhook to add; a field that is absent, or an empty list of types, does not narrow.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// `http` or `https`.
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<EventKind>,
    #[serde(default)]
    pub format: WebhookFormat,
    /// Signs the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256)]
    pub secret: Option<String>,
}

/// Without the secret.
impl std::fmt::Debug for NewWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewWebhook").field("url", &self.url).field("format", &self.format).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookFormat {
    /// As GSE reports its five events.
    Gse,
    #[default]
    Native,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    pub id: String,
    pub url: String,
    #[serde(default)]
    pub namespace: Option<String>,
    #[serde(default)]
    pub report_id: Option<i64>,
    #[serde(default)]
    pub types: Vec<String>,
    pub format: String,
    /// Whether it has a secret.
    pub signed: bool,
    pub created_at: i64,
    /// The last event that was delivered or does not match.
    pub cursor: u64,
}

/// The result of a webhook test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookTested {
    /// Whether events would arrive.
    pub delivered: bool,
    /// The HTTP status of the receiver's answer; null if it did not answer.
    #[serde(default)]
    pub status: Option<u16>,
    /// What went wrong; absent if it was delivered.
    #[serde(flatten)]
    pub failure: OptionalFailure,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    pub webhooks: Vec<WebhookView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_asks_only_for_what_it_narrows() {
        let filter = EventFilter {
            after: Some(0),
            types: vec![EventKind::Exited, EventKind::FdWarning],
            ..EventFilter::default()
        };

        let query = filter.to_query(None);

        assert_eq!((query.after, query.kinds.as_deref()), (Some(0), Some("exited,fd_warning")));
        assert_eq!(EventFilter::default().to_query(None), EventQuery::default());
    }

    #[test]
    fn debug_shows_no_secret() {
        let webhook = NewWebhook {
            url: "http://h/".into(),
            namespace: None,
            report_id: None,
            types: Vec::new(),
            format: WebhookFormat::Gse,
            secret: Some("hush".into()),
        };

        assert!(!format!("{webhook:?}").contains("hush"));
        assert_eq!(
            serde_json::to_value(&webhook).unwrap(),
            serde_json::json!({ "url": "http://h/", "format": "gse", "secret": "hush" })
        );
    }
}

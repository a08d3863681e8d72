//! Events and webhooks, as the client sees them.

use std::collections::BTreeMap;
use std::time::Duration;

use proctor_model::{AgentId, EventKind};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::{Client, Result};

/// What the way there and back may take beyond the time that the server waits.
const BEYOND_WAIT: Duration = Duration::from_secs(15);

/// Which events; a field that is None, and no types at all, do not narrow.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// The oldest after this id; None: the newest.
    pub after: Option<u64>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub host: Option<String>,
    pub types: Vec<EventKind>,
    pub limit: Option<u64>,
}

impl EventFilter {
    fn to_query(&self) -> Vec<(&'static str, String)> {
        let texts = [("namespace", &self.namespace), ("name", &self.name), ("host", &self.host)];
        let mut query: Vec<_> = texts.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
        query.extend(self.after.map(|after| ("after", after.to_string())));
        query.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        if !self.types.is_empty() {
            let types: Vec<&str> = self.types.iter().map(|kind| kind.as_str()).collect();
            query.push(("type", types.join(",")));
        }
        query
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventPage {
    /// Oldest first.
    pub events: Vec<EventView>,
    /// `after` of the next question.
    pub next: u64,
}

/// One event. Its times are in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventView {
    pub id: u64,
    pub at_ms: i64,
    pub stored_at_ms: i64,
    pub host: String,
    pub agent: AgentId,
    pub sequence: u64,
    /// As text: a newer server may have types that this version does not know.
    #[serde(rename = "type")]
    pub kind: String,
    /// `NAMESPACE/NAME`; None where no process is concerned.
    #[serde(default)]
    pub process: Option<String>,
    #[serde(default)]
    pub proc_name: String,
    #[serde(default)]
    pub report_id: Option<i64>,
    pub content: String,
    #[serde(default)]
    pub details: BTreeMap<String, String>,
}

/// A webhook to be added; a field that is None, and no types at all, do not narrow.
#[derive(Clone, Serialize)]
pub struct NewWebhook {
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_id: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<EventKind>,
    pub format: WebhookFormat,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Without the secret.
impl std::fmt::Debug for NewWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewWebhook").field("url", &self.url).field("format", &self.format).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookFormat {
    /// As GSE reports its five events.
    Gse,
    #[default]
    Native,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// The last event that it got or that does not concern it.
    pub cursor: u64,
}

#[derive(Deserialize)]
struct WebhookList {
    webhooks: Vec<WebhookView>,
}

#[derive(Deserialize)]
struct Removed {}

impl Client {
    pub async fn events(&self, filter: &EventFilter) -> Result<EventPage> {
        self.get(&["events"], &filter.to_query()).await
    }

    /// As [`Self::events`]; where nothing matches, the server waits for what does, at most `wait`.
    pub async fn follow_events(&self, filter: &EventFilter, wait: Duration) -> Result<EventPage> {
        let mut query = filter.to_query();
        query.push(("wait", wait.as_secs().to_string()));
        self.get_within(wait + BEYOND_WAIT, &["events"], &query).await
    }

    pub async fn webhooks(&self) -> Result<Vec<WebhookView>> {
        let list: WebhookList = self.get(&["webhooks"], &[]).await?;
        Ok(list.webhooks)
    }

    /// It gets the events from now on.
    pub async fn add_webhook(&self, webhook: &NewWebhook) -> Result<WebhookView> {
        self.send(Method::POST, &["webhooks"], &[], webhook).await
    }

    pub async fn remove_webhook(&self, id: &str) -> Result<()> {
        let Removed {} = self.send(Method::DELETE, &["webhooks", id], &[], &serde_json::json!({})).await?;
        Ok(())
    }
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

        assert_eq!(filter.to_query(), [("after", "0".to_owned()), ("type", "exited,fd_warning".to_owned())]);
        assert!(EventFilter::default().to_query().is_empty());
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

//! Events and webhooks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use proctor_model::{AgentId, Event};
use uuid::Uuid;

use crate::sqlite::{SqliteStore, events, webhooks};
use crate::{EventCountQuery, EventPage, EventQuery, EventStore, Millis, Result, Webhook};

#[async_trait]
impl EventStore for SqliteStore {
    async fn append_events(&self, agent: &AgentId, epoch: u64, events: &[Event], now: Millis) -> Result<u64> {
        let (agent, events) = (agent.clone(), events.to_vec());
        self.writer.run("keep events", move |c| events::append(c, &agent, epoch, &events, now)).await
    }

    async fn append_server_events(&self, events: &[(AgentId, Event)], now: Millis) -> Result<u64> {
        let events = events.to_vec();
        self.writer.run("keep events", move |c| events::append_own(c, events, now)).await
    }

    async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        let query = query.clone();
        self.readers.run("read the events", move |c| events::list(c, &query)).await
    }

    async fn count_events(&self, query: &EventCountQuery) -> Result<BTreeMap<String, Vec<u64>>> {
        let query = query.clone();
        self.readers.run("count the events", move |c| events::count(c, &query)).await
    }

    async fn put_webhook(&self, webhook: Webhook) -> Result<()> {
        self.writer.run("keep a webhook", move |c| webhooks::put(c, &webhook)).await
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>> {
        self.readers.run("read the webhooks", webhooks::all).await
    }

    async fn delete_webhook(&self, id: Uuid) -> Result<bool> {
        self.writer.run("remove a webhook", move |c| webhooks::delete(c, id)).await
    }

    async fn advance_webhook(&self, id: Uuid, cursor: u64) -> Result<()> {
        self.writer.run("move a webhook's cursor", move |c| webhooks::advance(c, id, cursor)).await
    }
}

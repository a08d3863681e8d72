//! Events with the last sequence of each agent, and webhooks with their cursors.
//!
//! Absent: delivery.

use std::collections::BTreeMap;

use async_trait::async_trait;
use proctor_model::{AgentId, Event};
use uuid::Uuid;

use crate::{EventCountQuery, EventPage, EventQuery, Millis, Result, Webhook};

/// Events and webhooks.
#[async_trait]
pub trait EventStore: Send + Sync + std::fmt::Debug {
    // Events.

    /// Keeps the events of an agent whose sequence is above all that it had before, and returns the
    /// highest sequence that is kept of it. Those of a host that is cordoned now are muted. Those of an older epoch than the agent's, and of an agent
    /// that is bound to no host, are dropped.
    async fn append_events(&self, agent: &AgentId, epoch: u64, events: &[Event], now: Millis) -> Result<u64>;
    /// Keeps events that the server made about the agents' hosts; their sequence is kept as 0. Returns how
    /// many: those of agents that are bound to no host are dropped.
    async fn append_server_events(&self, events: &[(AgentId, Event)], now: Millis) -> Result<u64>;
    /// The matching events, oldest first, and where to go on. Without `after` they are the newest of those.
    async fn events(&self, query: &EventQuery) -> Result<EventPage>;

    /// How many matching events of each kind were stored in each step; kinds without any are left out.
    async fn count_events(&self, query: &EventCountQuery) -> Result<BTreeMap<String, Vec<u64>>>;

    // Webhooks.

    /// Inserts the webhook, or replaces the one of the same id.
    async fn put_webhook(&self, webhook: Webhook) -> Result<()>;
    /// The oldest first.
    async fn webhooks(&self) -> Result<Vec<Webhook>>;
    /// Whether it was there.
    async fn delete_webhook(&self, id: Uuid) -> Result<bool>;
    /// Moves the cursor of a webhook forward, never back; one that is gone is left alone.
    async fn advance_webhook(&self, id: Uuid, cursor: u64) -> Result<()>;
}

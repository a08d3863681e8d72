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

    /// Stores those events of an agent whose sequence is above all earlier ones, and returns the highest stored
    /// sequence. Events of a cordoned host are muted. Events of an older epoch than the agent's, or of an agent
    /// that is bound to no host, are dropped.
    async fn append_events(&self, agent: &AgentId, epoch: u64, events: &[Event], now: Millis) -> Result<u64>;
    /// Stores events that the server made about the agents' hosts, with sequence 0. Returns how many: events of
    /// agents that are bound to no host are dropped.
    async fn append_server_events(&self, events: &[(AgentId, Event)], now: Millis) -> Result<u64>;
    /// The matching events, oldest first, and the next cursor. Without `after`, the newest of them.
    async fn events(&self, query: &EventQuery) -> Result<EventPage>;

    /// How many matching events of each kind were stored in each step; kinds without any are left out.
    async fn count_events(&self, query: &EventCountQuery) -> Result<BTreeMap<String, Vec<u64>>>;

    // Webhooks.

    /// Inserts the webhook, or replaces the one of the same id.
    async fn put_webhook(&self, webhook: Webhook) -> Result<()>;
    /// The oldest first.
    async fn webhooks(&self) -> Result<Vec<Webhook>>;
    /// Returns whether it existed.
    async fn delete_webhook(&self, id: Uuid) -> Result<bool>;
    /// Moves the cursor of a webhook forward, never back; does nothing if the webhook is gone.
    async fn advance_webhook(&self, id: Uuid, cursor: u64) -> Result<()>;
}

//! Events: those reported by agents, those produced by the server, and waking their followers.
//!
//! Promised: an agent gets its acknowledgement only after its events are stored, or dropped because they exceed its
//! budget (see `event_budget`), which an event of the kind `events_dropped` reports; an event is stored once, however
//! often it is sent; followers are woken after the write.
//! Absent: sending anything (see `webhooks`), and events about presence (see `presence`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, Class, Event, EventKind, Namespace, messages};
use proctor_runtime::{chain, clock};
use proctor_store::{EventCountQuery, EventPage, EventQuery, Webhook, WebhookFormat};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Caller, Control, LiveCaller, Result, Session};
use crate::webhooks::{AddressFilter, WebhookTrial, WebhookUrl, seal, seal_old, send_trial};

/// Each is its own task that reads every event that may concern it.
pub const WEBHOOKS_MAX: usize = 100;
/// Followers that look again soon after an event; the ones beyond wait [`CROWD_PAUSE`] in between.
const FOLLOWERS_MAX: usize = 256;
const CROWD_PAUSE: Duration = Duration::from_secs(1);
/// A follower that was woken for nothing waits this long before it reads again.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// Wakes those who wait for events, webhooks or changes of permissions.
#[derive(Debug)]
pub(super) struct ChangeNotifiers {
    events: watch::Sender<()>,
    webhooks: watch::Sender<()>,
    pub(super) access: watch::Sender<()>,
    followers: Semaphore,
    shutdown: CancellationToken,
}

impl ChangeNotifiers {
    pub(super) fn new(shutdown: CancellationToken) -> Self {
        Self {
            events: watch::Sender::default(),
            webhooks: watch::Sender::default(),
            access: watch::Sender::default(),
            followers: Semaphore::new(FOLLOWERS_MAX),
            shutdown,
        }
    }
}

/// A webhook to be added; a field that is None, and no kinds at all, do not narrow.
#[derive(Clone)]
pub struct NewWebhook {
    pub url: WebhookUrl,
    pub namespace: Option<Namespace>,
    pub report_id: Option<i64>,
    pub kinds: Vec<EventKind>,
    pub format: WebhookFormat,
    pub secret: Option<String>,
}

impl std::fmt::Debug for NewWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewWebhook").field("url", &self.url).field("format", &self.format).finish_non_exhaustive()
    }
}

fn events_dropped(count: u64) -> Event {
    Event {
        sequence: 0,
        at: clock::unix_millis(),
        process: None,
        proc_name: String::new(),
        report_id: None,
        kind: EventKind::EventsDropped,
        content: messages::events_dropped_over_budget(count),
        details: BTreeMap::from([("count".to_owned(), count.to_string())]),
    }
}

impl Control {
    /// Stores what an agent reports; its session then tells it how far it may forget. After an error nothing later
    /// may be stored before these are: it would acknowledge these too.
    pub async fn events_arrived(&self, session: &Session, events: &[Event]) -> Result<()> {
        let (agent, budgets) = (session.agent(), &self.inner.event_budgets);
        let admitted = budgets.admit(agent, events, Instant::now());
        let (stored, dropped) = events.split_at(admitted.count);
        let last_dropped = dropped.iter().map(|event| event.sequence).max().unwrap_or(0);
        if stored.is_empty() {
            session.saw_events(last_dropped);
            return Ok(());
        }
        let appended = self.inner.store.append_events(agent, session.epoch(), stored, clock::unix_millis()).await;
        if appended.is_err() {
            budgets.give_back(agent, admitted, Instant::now());
        }
        session.saw_events(appended?.max(last_dropped));
        stored.iter().for_each(|event| self.inner.metrics.event(event.kind));
        self.ring_events();
        Ok(())
    }

    /// Reports, from time to time, how many events of which hosts were dropped.
    pub(super) async fn tell_dropped_events(&self) {
        let dropped = self.inner.event_budgets.take_dropped(Instant::now());
        if dropped.is_empty() {
            return;
        }
        let told = |(agent, count): &(AgentId, u64)| {
            tracing::warn!(%agent, count, "host exceeded its event budget, events dropped");
            (agent.clone(), events_dropped(*count))
        };
        let events: Vec<_> = dropped.iter().map(told).collect();
        match self.inner.store.append_server_events(&events, clock::unix_millis()).await {
            Ok(_) => self.ring_events(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot report dropped events, retrying");
                self.inner.event_budgets.put_back_dropped(dropped, Instant::now());
            }
        }
    }

    pub async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        Ok(self.inner.store.events(query).await?)
    }

    /// How many events of each kind there were in each step of time, for callers who may follow them.
    pub async fn count_events(&self, caller: &Caller, query: &EventCountQuery) -> Result<BTreeMap<String, Vec<u64>>> {
        let mut standing = self.live_caller(caller.clone());
        self.require_event_access(&mut standing, &query.which).await?;
        let turn = self.inner.long_reads.turn(&caller.account()).await;
        // It may have been a while.
        self.require_event_access(&mut standing, &query.which).await?;
        let query = query.clone();
        self.run_to_completion("event count", |control| async move {
            let _turn = turn;
            Ok(control.inner.store.count_events(&query).await?)
        })
        .await
    }

    /// Events of a host, of a namespace that the caller may read everywhere, or of everything: as the caller's
    /// rights are now.
    pub async fn require_event_access(&self, standing: &mut LiveCaller, query: &EventQuery) -> Result<()> {
        let caller = standing.current(self).await?;
        let scopes = caller.permissions.scopes(Class::Read);
        if query.namespace.as_ref().is_some_and(|namespace| scopes.namespaces.contains(namespace)) {
            return Ok(());
        }
        match &query.agent {
            None => caller.require(Class::Read),
            Some(agent) => {
                let hosts = self.inner.store.sites_by_agent(std::slice::from_ref(agent)).await?;
                caller.require_on(Class::Read, hosts.iter().flatten(), query.namespace.as_ref())
            }
        }
    }

    /// As [`Self::events`], but if nothing matches yet it waits for a match, at most `wait`. Ends with an error when
    /// the caller may no longer read these events.
    pub async fn follow_events(
        &self,
        standing: &mut LiveCaller,
        mut query: EventQuery,
        wait: Duration,
    ) -> Result<EventPage> {
        let notifiers = &self.inner.notifiers;
        let deadline = tokio::time::Instant::now() + wait;
        let mut rung = notifiers.events.subscribe();
        let permit = notifiers.followers.try_acquire();
        loop {
            self.require_event_access(standing, &query).await?;
            let turn = self.inner.long_reads.turn(&standing.account()).await;
            // It may have been a while.
            self.require_event_access(standing, &query).await?;
            rung.mark_unchanged();
            let wanted = query.clone();
            let read = self.run_to_completion("event read", |control| async move {
                let _turn = turn;
                control.events(&wanted).await
            });
            let page = read.await?;
            if !page.events.is_empty() || query.limit == 0 || tokio::time::Instant::now() >= deadline {
                return Ok(page);
            }
            query.after = Some(page.next);
            let something_new = async {
                tokio::time::sleep(if permit.is_ok() { FOLLOW_PAUSE } else { CROWD_PAUSE }).await;
                let _ = rung.changed().await;
            };
            tokio::select! {
                () = something_new => {}
                () = standing.changed() => {}
                () = tokio::time::sleep_until(deadline) => {}
                () = notifiers.shutdown.cancelled() => return Ok(page),
            }
        }
    }

    /// Seals the secrets of webhooks that older versions kept as they were.
    pub(crate) async fn seal_old_webhooks(&self) -> Result<()> {
        Ok(seal_old(self.inner.store.as_ref()).await?)
    }

    /// Ends what waits for events.
    pub(crate) fn end_waits(&self) {
        self.inner.notifiers.shutdown.cancel();
    }

    /// Cancelled when the server ends.
    pub(crate) fn shutdown(&self) -> CancellationToken {
        self.inner.notifiers.shutdown.clone()
    }

    /// Changes when there may be new events.
    pub(crate) fn event_changes(&self) -> watch::Receiver<()> {
        self.inner.notifiers.events.subscribe()
    }

    /// Changes when webhooks were added or removed.
    pub(crate) fn webhook_changes(&self) -> watch::Receiver<()> {
        self.inner.notifiers.webhooks.subscribe()
    }

    /// Gets events from now on. None if there are [`WEBHOOKS_MAX`] already.
    pub async fn add_webhook(&self, new: NewWebhook) -> Result<Option<Webhook>> {
        let store = &self.inner.store;
        if store.webhooks().await?.len() >= WEBHOOKS_MAX {
            return Ok(None);
        }
        let NewWebhook { url, namespace, report_id, kinds, format, secret } = new;
        let id = Uuid::new_v4();
        let secret = match secret {
            Some(secret) => Some(seal(store.as_ref(), id, &secret).await?),
            None => None,
        };
        let webhook = Webhook {
            id,
            url: url.to_string(),
            namespace,
            report_id,
            kinds,
            format,
            secret,
            created_at: clock::unix_millis(),
            cursor: store.events(&EventQuery::default()).await?.next,
        };
        store.put_webhook(webhook.clone()).await?;
        self.inner.notifiers.webhooks.send_replace(());
        Ok(Some(webhook))
    }

    pub async fn webhooks(&self) -> Result<Vec<Webhook>> {
        Ok(self.inner.store.webhooks().await?)
    }

    /// Whether it was there.
    pub async fn remove_webhook(&self, id: Uuid) -> Result<bool> {
        let was_there = self.inner.store.delete_webhook(id).await?;
        self.inner.notifiers.webhooks.send_replace(());
        Ok(was_there)
    }

    /// Sends one request that is marked as a test. None where tests are too frequent.
    pub async fn test_webhook(&self, webhook: Webhook, reach: AddressFilter) -> Result<Option<WebhookTrial>> {
        let Some(_permit) = self.inner.webhook_trials.admit(webhook.id, Instant::now()) else { return Ok(None) };
        Ok(Some(send_trial(self, webhook, reach).await))
    }

    /// Every event up to `cursor` is delivered.
    pub(crate) async fn advance_webhook(&self, id: Uuid, cursor: u64) -> Result<()> {
        Ok(self.inner.store.advance_webhook(id, cursor).await?)
    }

    pub(super) fn ring_events(&self) {
        self.inner.notifiers.events.send_replace(());
    }
}

//! Connected relays, and which cloud areas they serve.
//!
//! Promised: a revoked relay is cut off at once, with everything it carries; a relay has only a few connections. An
//! area counts as served once one of its relays has been connected long enough for the agents behind it to come back.
//! Missing relays are counted until they are revoked.
//! Absent: the connections themselves (see `gateway`), and agents (see `presence`).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use proctor_model::RelayId;
use proctor_runtime::{chain, clock};
use proctor_store::{EnrolRefusal, RelayEnrolment, RelayRecord};
use proctor_wire::{AREA_RETURN_MAX, Streams};
use tokio_util::sync::CancellationToken;

use super::{Control, Result};

/// Connections of one relay at the same time: a few, and as many again while they are being replaced.
pub(crate) const CONNECTIONS_MAX: usize = 8;

/// One connection of a relay.
#[derive(Debug)]
pub(crate) struct RelayConnection {
    number: u64,
    pub(crate) relay: RelayId,
    pub(crate) cloud: u32,
    pub(crate) streams: Streams,
    version: String,
    dismissed: CancellationToken,
}

impl RelayConnection {
    /// Returns when the relay was revoked.
    pub(crate) async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }
}

/// A connection that counts, until it is dropped: however its task ends, the relay does not seem to be there.
#[derive(Debug)]
pub(crate) struct ConnectedRelay {
    control: Control,
    connection: Arc<RelayConnection>,
}

impl ConnectedRelay {
    pub(crate) fn shared(&self) -> Arc<RelayConnection> {
        self.connection.clone()
    }
}

impl std::ops::Deref for ConnectedRelay {
    type Target = RelayConnection;

    fn deref(&self) -> &RelayConnection {
        &self.connection
    }
}

impl Drop for ConnectedRelay {
    fn drop(&mut self) {
        let inner = &self.control.inner;
        self.connection.streams.end();
        let is_last = inner.relays.remove(&self.connection);
        if is_last && !inner.tasks.shutdown().is_cancelled() {
            tracing::warn!(
                cloud = self.connection.cloud,
                "no relay of this cloud area is connected: its hosts are unreachable until one is"
            );
        }
    }
}

/// A relay as operators see it.
#[derive(Clone, Debug)]
pub struct RelayState {
    pub record: RelayRecord,
    pub connections: usize,
    pub agents: usize,
    pub version: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Relays {
    numbers: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connected: HashMap<RelayId, Vec<Arc<RelayConnection>>>,
    /// Since when each area has a relay.
    served: HashMap<u32, Instant>,
    /// Relays that have enrolled and were not revoked, as far as this server knows.
    enrolled: HashSet<RelayId>,
}

impl Relays {
    /// Of the relays that the store has when the server starts.
    pub(super) fn of_earlier_life(records: Vec<RelayRecord>) -> Self {
        let relays = Self::default();
        let enrolled = records.into_iter().filter(|record| record.revoked_at.is_none()).map(|record| record.id);
        relays.state.lock().enrolled = enrolled.collect();
        relays
    }

    fn enrolled(&self, relay: &RelayId) {
        self.state.lock().enrolled.insert(relay.clone());
    }

    /// Nobody waits for it any more.
    fn forget(&self, relay: &RelayId) {
        self.state.lock().enrolled.remove(relay);
    }

    /// Those that should be connected, and are not.
    pub(super) fn away(&self) -> usize {
        let state = self.state.lock();
        state.enrolled.iter().filter(|relay| !state.connected.contains_key(*relay)).count()
    }

    /// Whether there is one more connection than before.
    fn add(&self, connection: &Arc<RelayConnection>, now: Instant) -> bool {
        let mut state = self.state.lock();
        let of_relay = state.connected.entry(connection.relay.clone()).or_default();
        if of_relay.len() >= CONNECTIONS_MAX {
            return false;
        }
        of_relay.push(connection.clone());
        state.served.entry(connection.cloud).or_insert(now);
        true
    }

    /// Whether it was the last one of its area.
    fn remove(&self, connection: &RelayConnection) -> bool {
        let mut state = self.state.lock();
        if let Some(of_relay) = state.connected.get_mut(&connection.relay) {
            of_relay.retain(|other| other.number != connection.number);
            if of_relay.is_empty() {
                state.connected.remove(&connection.relay);
            }
        }
        let is_served = state.connected.values().flatten().any(|other| other.cloud == connection.cloud);
        !is_served && state.served.remove(&connection.cloud).is_some()
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().connected.len()
    }

    /// Whether a relay of the area is connected.
    pub(super) fn has_relay(&self, cloud: u32) -> bool {
        self.state.lock().served.contains_key(&cloud)
    }

    /// Whether one is, and has been for so long that its agents are back if they can be.
    pub(super) fn is_served(&self, cloud: u32, now: Instant) -> bool {
        let since = self.state.lock().served.get(&cloud).copied();
        since.is_some_and(|since| now.saturating_duration_since(since) >= AREA_RETURN_MAX)
    }

    fn of(&self, relay: &RelayId) -> Vec<Arc<RelayConnection>> {
        self.state.lock().connected.get(relay).cloned().unwrap_or_default()
    }
}

impl Control {
    /// Enrols a relay; returns the name that it has from now on.
    pub(crate) async fn enrol_relay(
        &self,
        enrolment: RelayEnrolment,
    ) -> Result<std::result::Result<RelayId, EnrolRefusal>> {
        let enrolled = self.inner.store.enrol_relay(enrolment, clock::unix_millis()).await?;
        if let Ok(relay) = &enrolled {
            self.inner.relays.enrolled(relay);
            self.inner.authorities.forget_relay(relay);
        }
        Ok(enrolled)
    }

    pub(crate) async fn knows_relay_token(&self, id: &str, secret_hash: &str) -> Result<bool> {
        Ok(self.inner.store.knows_relay_token(id, secret_hash).await?)
    }

    /// The relay of this key, if it may connect. Records that it is there.
    pub(crate) async fn meet_relay(
        &self,
        relay: &RelayId,
        key_fingerprint: &str,
        remote: Option<IpAddr>,
    ) -> Result<Option<RelayRecord>> {
        let met = self.inner.store.meet_relay(relay, key_fingerprint, remote, clock::unix_millis()).await?;
        // It may have been revoked, or restored, outside the server.
        match &met {
            Some(_) => self.inner.relays.enrolled(relay),
            None => self.inner.relays.forget(relay),
        }
        Ok(met)
    }

    /// None if it has too many connections.
    pub(crate) fn relay_connected(
        &self,
        record: &RelayRecord,
        streams: Streams,
        version: String,
    ) -> Option<ConnectedRelay> {
        let relays = &self.inner.relays;
        let connection = Arc::new(RelayConnection {
            number: relays.numbers.fetch_add(1, Ordering::Relaxed),
            relay: record.id.clone(),
            cloud: record.cloud,
            streams,
            version,
            dismissed: CancellationToken::new(),
        });
        relays.add(&connection, Instant::now()).then(|| ConnectedRelay { control: self.clone(), connection })
    }

    pub(crate) async fn relay_disconnected(&self, connected: ConnectedRelay, key_fingerprint: &str) {
        let relay = connected.relay.clone();
        drop(connected);
        if let Err(error) = self.meet_relay(&relay, key_fingerprint, None).await {
            tracing::debug!(%relay, error = %chain(&error), "cannot note when a relay was last seen");
        }
    }

    /// All relays that have enrolled.
    pub(crate) async fn relays(&self) -> Result<Vec<RelayState>> {
        let records = self.inner.store.relays().await?;
        let state = |record: RelayRecord| {
            let connections = self.inner.relays.of(&record.id);
            RelayState {
                connections: connections.len(),
                agents: connections.iter().map(|connection| connection.streams.count()).sum(),
                version: connections.last().map(|connection| connection.version.clone()),
                record,
            }
        };
        Ok(records.into_iter().map(state).collect())
    }

    /// The relay may no longer connect; what it carries ends at once. False for an unknown relay.
    pub async fn revoke_relay(&self, relay: &RelayId) -> Result<bool> {
        let known = self.inner.store.revoke_relay(relay, clock::unix_millis()).await?;
        self.inner.relays.forget(relay);
        self.inner.authorities.forget_relay(relay);
        for connection in self.inner.relays.of(relay) {
            connection.dismissed.cancel();
        }
        Ok(known.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(number: u64, relay: &str, cloud: u32) -> Arc<RelayConnection> {
        Arc::new(RelayConnection {
            number,
            relay: relay.parse().unwrap(),
            cloud,
            streams: Streams::new(1),
            version: String::new(),
            dismissed: CancellationToken::new(),
        })
    }

    #[test]
    fn an_area_is_served_from_its_first_relay_to_its_last() {
        let (relays, begun) = (Relays::default(), Instant::now());
        let (one, two, other) = (connection(1, "r-1", 3), connection(2, "r-2", 3), connection(3, "r-3", 4));
        assert!(relays.add(&one, begun) && relays.add(&two, begun + AREA_RETURN_MAX) && relays.add(&other, begun));

        assert!(relays.has_relay(3) && !relays.is_served(3, begun + AREA_RETURN_MAX / 2));
        assert!(relays.is_served(3, begun + AREA_RETURN_MAX));
        assert!(!relays.remove(&one) && relays.has_relay(3));
        assert!(relays.remove(&two), "the last one");

        assert!(!relays.has_relay(3) && relays.has_relay(4));
        relays.add(&one, begun + 2 * AREA_RETURN_MAX);
        assert!(!relays.is_served(3, begun + 2 * AREA_RETURN_MAX), "its agents get their time again");
    }

    #[test]
    fn relays_that_are_away_are_counted_until_they_are_revoked() {
        let record = |id: &str, revoked_at| RelayRecord {
            id: id.parse().unwrap(),
            cloud: 3,
            key_fingerprint: String::new(),
            enrolled_at: 1,
            last_seen_at: None,
            remote: None,
            revoked_at,
        };
        let relays = Relays::of_earlier_life(vec![record("r-1", None), record("r-2", None), record("r-3", Some(1))]);
        let (one, now) = (connection(1, "r-1", 3), Instant::now());
        assert_eq!(relays.away(), 2);

        relays.add(&one, now);
        assert_eq!(relays.away(), 1);
        relays.remove(&one);
        relays.forget(&"r-2".parse().unwrap());

        assert_eq!(relays.away(), 1, "for as long as it takes");
        relays.forget(&one.relay);
        assert_eq!(relays.away(), 0);
    }

    #[test]
    fn a_relay_has_a_few_connections_and_no_more() {
        let relays = Relays::default();
        let added = (0..20).filter(|number| relays.add(&connection(*number, "r-1", 3), Instant::now())).count();

        assert_eq!(added, CONNECTIONS_MAX);
        assert!(relays.add(&connection(99, "r-2", 3), Instant::now()), "others have their own");
    }
}

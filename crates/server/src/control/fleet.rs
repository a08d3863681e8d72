//! The whole fleet in memory, for sums and searches over all of it.
//!
//! Promised: reading it from the store takes at most a fiftieth of the time, however many ask, and while nobody does
//! it is read only every few minutes, for the overview's trend; one read serves all who wait. So it is milliseconds
//! old with few processes and a few seconds old with very many. What a caller may see is decided per query, by the
//! permissions at that time.
//! Absent: lists of processes, which are read from the store directly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{AccessTarget, AgentId, Class, ScopeSet};
use proctor_runtime::clock;
use proctor_store::{Fleet, FleetHost, Millis, ProcessQuery};
use tokio::sync::Mutex;

use super::{Caller, Control, HostRef, Result};

/// It is good for so many times as long as it took to read.
const GOOD_FOR: u32 = 50;
const GOOD_FOR_MAX: Duration = Duration::from_secs(10);
/// The memory is freed when nobody has asked for this long.
const KEPT_FOR: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct FleetCache {
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    seen: SeenFleet,
    good_until: Instant,
    asked: Instant,
}

/// The fleet as it was at a moment.
#[derive(Clone, Debug)]
pub struct SeenFleet {
    pub fleet: Arc<Fleet>,
    pub at: Millis,
}

impl FleetCache {
    pub(super) fn forget_unused(&self) {
        if let Ok(mut held) = self.held.try_lock() {
            held.take_if(|held| held.asked.elapsed() >= KEPT_FOR);
        }
    }
}

impl Control {
    /// For callers that may read something.
    pub async fn fleet(&self, caller: &Caller) -> Result<SeenFleet> {
        caller.require_anywhere(Class::Read)?;
        let mut held = self.inner.fleet.held.lock().await;
        let asked = Instant::now();
        if let Some(held) = held.as_mut().filter(|held| asked < held.good_until) {
            held.asked = asked;
            return Ok(held.seen.clone());
        }
        let before = held.as_ref().map(|held| held.seen.fleet.clone());
        let seen = self.read_fleet(before).await?;
        let good_for = (asked.elapsed() * GOOD_FOR).min(GOOD_FOR_MAX);
        *held = Some(Held { seen: seen.clone(), good_until: asked + good_for, asked });
        Ok(seen)
    }

    /// For the server itself: the one that is held, or a new one that is not.
    pub(crate) async fn fleet_unheld(&self) -> Result<SeenFleet> {
        let held = self.inner.fleet.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| Instant::now() < held.good_until) {
            return Ok(held.seen.clone());
        }
        drop(held);
        self.read_fleet(None).await
    }

    async fn read_fleet(&self, before: Option<Arc<Fleet>>) -> Result<SeenFleet> {
        let at = clock::unix_millis();
        let mut fleet = self.inner.store.fleet(before).await?;
        let gone = self.offline_not_stored();
        for host in fleet.hosts.iter_mut().filter(|host| gone.contains(&host.site.agent)) {
            host.online = false;
        }
        Ok(SeenFleet { fleet: Arc::new(fleet), at })
    }

    /// A query of [`Self::processes`] as it would be narrowed there: to the hosts, all of which the caller must be
    /// allowed to read, and to what the caller may see.
    pub async fn narrowed(
        &self,
        caller: &Caller,
        mut query: ProcessQuery,
        hosts: Option<&[HostRef]>,
    ) -> Result<ProcessQuery> {
        if let Some(hosts) = hosts {
            let records = self.readable_sites(caller, hosts, query.namespace.as_ref()).await?;
            let agents: Vec<AgentId> = records.into_iter().flatten().map(|host| host.agent).collect();
            query.agents = Some(agents);
        } else {
            caller.require_anywhere(Class::Read)?;
        }
        let scopes = caller.permissions.scopes(Class::Read);
        query.scopes = (!scopes.everywhere).then(|| scopes.clone());
        Ok(query)
    }
}

/// Whether a host as a whole lies there.
pub fn is_inside(scopes: &ScopeSet, host: &FleetHost) -> bool {
    let site = &host.site;
    scopes.contains(&AccessTarget { business: site.business, cloud: Some(site.key.cloud), namespace: None })
}

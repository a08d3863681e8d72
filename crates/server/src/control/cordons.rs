//! Which hosts are cordoned, in memory: for alarms, which must not wait for the store.
//!
//! Promised: it says what the store says, from the start on; a cordon that has an end is over then. Absent: why, and what a
//! cordon keeps from a host (see `maintenance`).

use std::collections::HashMap;

use parking_lot::Mutex;
use proctor_model::{AgentId, HostKey};
use proctor_store::{Cordon, HostLocation, HostRecord, Millis};

#[derive(Debug, Default)]
pub(super) struct Cordons {
    held: Mutex<HashMap<HostKey, Held>>,
}

#[derive(Debug)]
struct Held {
    agent: AgentId,
    until: Option<Millis>,
}

impl Held {
    fn holds_at(&self, now: Millis) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Cordons {
    pub(super) fn of_hosts(hosts: &[HostRecord]) -> Self {
        let cordons = Self::default();
        for host in hosts {
            cordons.set(&host.site, host.site.cordon.as_deref());
        }
        cordons
    }

    pub(super) fn set(&self, site: &HostLocation, cordon: Option<&Cordon>) {
        let mut held = self.held.lock();
        match cordon {
            Some(cordon) => held.insert(site.key, Held { agent: site.agent.clone(), until: cordon.until }),
            None => held.remove(&site.key),
        };
    }

    /// The host was removed.
    pub(super) fn forget(&self, host: &HostKey) {
        self.held.lock().remove(host);
    }

    /// The agents of the hosts that are cordoned at this time.
    pub(super) fn agents(&self, now: Millis) -> Vec<AgentId> {
        self.held.lock().values().filter(|held| held.holds_at(now)).map(|held| held.agent.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cordon_holds_until_its_end_or_until_somebody_ends_it() {
        let site = |ip: &str| HostLocation {
            key: format!("0:{ip}").parse().unwrap(),
            agent: format!("agent-{ip}").parse().unwrap(),
            alias: None,
            business: None,
            cordon: None,
            awaits_approval: false,
        };
        let cordon = |until| Cordon { reason: "x".into(), by: "ada".into(), since: 0, until, held_since: None };
        let cordons = Cordons::default();

        cordons.set(&site("10.0.0.1"), Some(&cordon(Some(10))));
        cordons.set(&site("10.0.0.2"), Some(&cordon(None)));
        cordons.set(&site("10.0.0.3"), Some(&cordon(None)));
        assert_eq!((cordons.agents(9).len(), cordons.agents(10).len()), (3, 2));
        cordons.set(&site("10.0.0.2"), None);
        assert_eq!(cordons.agents(10), [site("10.0.0.3").agent]);
        cordons.forget(&site("10.0.0.3").key);
        assert!(cordons.agents(10).is_empty());
    }
}

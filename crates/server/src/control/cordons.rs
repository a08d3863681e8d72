//! Which agents are on cordoned hosts, in memory: for alerts, which must not wait for the store.
//!
//! Promised: it matches the store, from startup on; a cordon with an end expires then. A change of a cordon, or of a
//! host's agent, goes to the store first and then triggers a reload: one at a time, so that the last reload has seen
//! every change.
//! Absent: why, and what a cordon keeps from a host (see `maintenance`).

use std::collections::HashMap;

use parking_lot::Mutex;
use proctor_model::{AgentId, HostKey};
use proctor_store::{HostLocation, HostRecord, Millis, Result, Store};

#[derive(Debug, Default)]
pub(super) struct Cordons {
    /// With the end, where there is one.
    held: Mutex<HashMap<AgentId, Option<Millis>>>,
    /// Held from the question to the store until its answer is in `held`.
    turn: tokio::sync::Mutex<()>,
}

impl Cordons {
    pub(super) fn of_hosts(hosts: &[HostRecord]) -> Self {
        let cordons = Self::default();
        for host in hosts {
            cordons.set(&host.site.agent, Some(&host.site));
        }
        cordons
    }

    /// The cordon of the host may have changed.
    pub(super) async fn read_host(&self, store: &dyn Store, host: &HostKey) -> Result<()> {
        let _turn = self.turn.lock().await;
        for site in store.sites_by_key(std::slice::from_ref(host)).await?.iter().flatten() {
            self.set(&site.agent, Some(site));
        }
        Ok(())
    }

    /// The agents may have another host, or none.
    pub(super) async fn read_agents(&self, store: &dyn Store, agents: &[AgentId]) -> Result<()> {
        let _turn = self.turn.lock().await;
        for (agent, site) in agents.iter().zip(store.sites_by_agent(agents).await?) {
            // Another agent's host may have this name as its alias.
            self.set(agent, site.filter(|site| site.agent == *agent).as_ref());
        }
        Ok(())
    }

    /// The host of the agent was removed.
    pub(super) async fn forget(&self, agent: &AgentId) {
        let _turn = self.turn.lock().await;
        self.set(agent, None);
    }

    fn set(&self, agent: &AgentId, site: Option<&HostLocation>) {
        let mut held = self.held.lock();
        match site.and_then(|site| site.cordon.as_ref()) {
            Some(cordon) => held.insert(agent.clone(), cordon.until),
            None => held.remove(agent),
        };
    }

    /// The agents of the hosts that are cordoned at this time.
    pub(super) fn agents(&self, now: Millis) -> Vec<AgentId> {
        let holds = |until: Option<Millis>| until.is_none_or(|until| now < until);
        self.held.lock().iter().filter(|(_, until)| holds(**until)).map(|(agent, _)| agent.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proctor_store::Cordon;

    use super::*;

    #[tokio::test]
    async fn a_cordon_holds_until_its_end_or_until_somebody_ends_it() {
        let site = |ip: &str, cordon| HostLocation {
            key: format!("0:{ip}").parse().unwrap(),
            agent: format!("agent-{ip}").parse().unwrap(),
            alias: None,
            business: None,
            cordon,
            awaits_approval: false,
        };
        let cordon =
            |until| Some(Box::new(Cordon { reason: "x".into(), by: "ada".into(), since: 0, until, held_since: None }));
        let cordons = Cordons::default();
        let set = |site: HostLocation| cordons.set(&site.agent, Some(&site));

        set(site("10.0.0.1", cordon(Some(10))));
        set(site("10.0.0.2", cordon(None)));
        set(site("10.0.0.3", cordon(None)));
        assert_eq!((cordons.agents(9).len(), cordons.agents(10).len()), (3, 2));
        set(site("10.0.0.2", None));
        let last = site("10.0.0.3", None).agent;
        assert_eq!(cordons.agents(10), std::slice::from_ref(&last));
        cordons.forget(&last).await;
        assert!(cordons.agents(10).is_empty());
    }
}

//! Which processes of a fleet a query means: as [`crate::Store::processes`] would answer it, without paging.

use std::collections::{BTreeSet, HashMap, HashSet};

use proctor_model::{AccessTarget, AgentId, ScopeSet};

use crate::{Fleet, FleetHost, FleetProcess, FleetSpec, Health, ProcessQuery, SpecNumber};

/// A query, evaluated in advance for each key, host, spec and version, so that little is left to do per process.
#[derive(Debug)]
pub struct FleetFilter<'a> {
    query: &'a ProcessQuery,
    health: Option<Health>,
    keys: Vec<Verdict>,
    hosts: Vec<Verdict>,
    specs: HashMap<SpecNumber, bool>,
    versions: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Verdict {
    is_meant: bool,
    /// The caller may see everything that has it.
    is_visible: bool,
    has_text: bool,
}

impl<'a> FleetFilter<'a> {
    pub fn new(fleet: &Fleet, query: &'a ProcessQuery) -> Self {
        let text = query.text.as_ref().map(|text| text.to_ascii_lowercase());
        let has_text = |within: &str| text.as_ref().is_none_or(|text| within.to_ascii_lowercase().contains(&**text));
        let everywhere = ScopeSet { everywhere: true, ..ScopeSet::default() };
        let scopes = query.scopes.as_ref().unwrap_or(&everywhere);
        let agents: Option<HashSet<&AgentId>> = query.agents.as_ref().map(|agents| agents.iter().collect());
        let businesses: Option<BTreeSet<u64>> =
            query.businesses.as_ref().map(|businesses| businesses.iter().copied().collect());
        let host = |host: &FleetHost| {
            let site = &host.site;
            let target = AccessTarget { business: site.business, cloud: Some(site.key.cloud), namespace: None };
            Verdict {
                is_meant: agents.as_ref().is_none_or(|agents| agents.contains(&site.agent))
                    && businesses.as_ref().is_none_or(|wanted| site.business.is_some_and(|id| wanted.contains(&id)))
                    && query.cloud.is_none_or(|cloud| cloud == site.key.cloud)
                    && query.online.is_none_or(|online| online == host.online)
                    && query.cordoned.is_none_or(|(cordoned, now)| cordoned == site.cordon_at(now).is_some()),
                is_visible: scopes.contains(&target),
                has_text: has_text(&site.key.to_string()),
            }
        };
        let key = |key: &proctor_model::ProcessKey| Verdict {
            is_meant: query.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
                && query.name.as_ref().is_none_or(|name| *name == key.name)
                && query.keys.as_ref().is_none_or(|keys| keys.contains(key)),
            is_visible: scopes.namespaces.contains(&key.namespace),
            has_text: has_text(&format!("{}/{}", key.namespace, key.name)),
        };
        let spec = |spec: &FleetSpec| {
            query.lifetime.is_none_or(|lifetime| lifetime == spec.lifetime)
                && query.labels.iter().all(|term| term.holds(&spec.labels))
        };
        Self {
            query,
            health: query.health.as_deref().map(Health::from_text),
            keys: fleet.keys.iter().map(key).collect(),
            hosts: fleet.hosts.iter().map(host).collect(),
            specs: fleet.specs.iter().map(|(number, found)| (*number, spec(found))).collect(),
            versions: fleet.versions.iter().map(|version| has_text(version)).collect(),
        }
    }

    pub fn holds(&self, process: &FleetProcess) -> bool {
        let (key, host) = (&self.keys[process.key as usize], &self.hosts[process.host as usize]);
        key.is_meant
            && host.is_meant
            && (key.is_visible || host.is_visible)
            && (key.has_text || host.has_text || self.versions[process.version as usize])
            && (self.query.phases.is_empty() || self.query.phases.contains(&process.phase))
            && self.query.managed.is_none_or(|managed| managed == process.managed)
            && self.health.is_none_or(|health| health == process.health)
            && self.query.trouble.is_none_or(|trouble| process.has(trouble))
            && self.specs.get(&process.spec).copied().unwrap_or(false)
    }
}

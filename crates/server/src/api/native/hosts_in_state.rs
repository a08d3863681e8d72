//! Hosts by their state or trouble: found in the fleet as the overview counts it, and shown as the store has them.

use proctor_api::{HostStatus, HostTrouble};
use proctor_model::HostKey;
use proctor_store::{FleetHost, HostRecord};

use super::visible::Visible;
use super::{ApiState, Result};
use crate::control::{Caller, HostRef, SeenFleet};

pub(super) struct Wanted {
    pub(super) state: Option<HostStatus>,
    pub(super) trouble: Option<HostTrouble>,
    /// As for the store; without a token, and with a limit.
    pub(super) query: proctor_store::HostQuery,
}

pub(super) async fn records(state: &ApiState, caller: &Caller, wanted: Wanted) -> Result<Vec<HostRecord>> {
    let (control, who) = (state.control.clone(), caller.clone());
    let keys = move |seen: &SeenFleet| wanted.keys(&Visible::new(seen, &who, &control));
    let keys = state.border.fleet_work.run(&state.control, caller, keys).await?;
    let hosts: Vec<HostRef> = keys.into_iter().map(HostRef::Key).collect();
    Ok(state.control.hosts_named(caller, &hosts).await?)
}

impl Wanted {
    fn keys(&self, seen: &Visible<'_>) -> Vec<HostKey> {
        let query = &self.query;
        // In this order, as the store sorts them.
        let place = |key: &HostKey| (key.cloud, key.ip.to_string());
        let after = query.after.as_ref().map(place);
        let text = query.text.as_ref().map(|text| text.to_lowercase());
        let is_meant = |host: &&FleetHost| {
            self.state.is_none_or(|state| state == seen.status(host))
                && self.trouble.is_none_or(|trouble| seen.has_trouble(host, trouble))
                && query.business.is_none_or(|business| host.site.business == Some(business))
                && query.cloud.is_none_or(|cloud| host.site.key.cloud == cloud)
                && query.online.is_none_or(|online| host.online == online)
                && query.version.as_ref().is_none_or(|version| *host.agent_version == **version)
                && text.as_ref().is_none_or(|text| has_text(host, text))
                && after.as_ref().is_none_or(|after| place(&host.site.key) > *after)
        };
        let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
        seen.hosts().filter(is_meant).map(|host| host.site.key).take(limit).collect()
    }
}

fn has_text(host: &FleetHost, text: &str) -> bool {
    [&host.site.key.to_string(), host.site.agent.as_str(), &host.hostname]
        .into_iter()
        .any(|within| within.to_lowercase().contains(text))
}

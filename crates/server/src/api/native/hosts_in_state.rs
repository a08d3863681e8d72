//! Hosts by state or problem: found in the fleet as the overview counts it, and shown as stored.

use proctor_api::{HostStatus, HostTrouble};
use proctor_model::HostKey;
use proctor_store::{FleetHost, HostRecord};

use super::visible::Visible;
use super::{ApiState, Result};
use crate::control::{Caller, HostRef, SeenFleet};

pub(super) struct Wanted {
    pub(super) state: Option<HostStatus>,
    pub(super) trouble: Option<HostTrouble>,
    /// As for the store; without a token.
    pub(super) query: proctor_store::HostQuery,
}

pub(super) struct Page {
    pub(super) records: Vec<HostRecord>,
    /// The list goes on after this one.
    pub(super) next: Option<HostKey>,
}

/// At most `limit` of them. A host that was removed since the fleet was read is left out, and does not end the list.
pub(super) async fn page(state: &ApiState, caller: &Caller, wanted: Wanted, limit: usize) -> Result<Page> {
    let (control, who) = (state.control.clone(), caller.clone());
    let keys = move |seen: &SeenFleet| wanted.keys(&Visible::new(seen, &who, &control), limit.saturating_add(1));
    let mut keys = state.border.fleet_work.run(&state.control, caller, keys).await?;
    let next = cut(&mut keys, limit);
    let hosts: Vec<HostRef> = keys.into_iter().map(HostRef::Key).collect();
    Ok(Page { records: state.control.hosts_named(caller, &hosts).await?, next })
}

/// Leaves a page of the keys, and says after which the next one begins.
fn cut(keys: &mut Vec<HostKey>, limit: usize) -> Option<HostKey> {
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    keys.last().filter(|_| has_more).copied()
}

impl Wanted {
    fn keys(&self, seen: &Visible<'_>, limit: usize) -> Vec<HostKey> {
        let query = &self.query;
        // In this order, as the store sorts them.
        let position = |key: &HostKey| (key.cloud, key.ip.to_string());
        let after = query.after.as_ref().map(position);
        let text = query.text.as_ref().map(|text| text.to_lowercase());
        let is_meant = |host: &&FleetHost| {
            self.state.is_none_or(|state| state == seen.status(host))
                && self.trouble.is_none_or(|trouble| seen.has_trouble(host, trouble))
                && query.business.is_none_or(|business| host.site.business == Some(business))
                && query.cloud.is_none_or(|cloud| host.site.key.cloud == cloud)
                && query.online.is_none_or(|online| host.online == online)
                && query.version.as_ref().is_none_or(|version| *host.agent_version == **version)
                && text.as_ref().is_none_or(|text| has_text(host, text))
                && after.as_ref().is_none_or(|after| position(&host.site.key) > *after)
        };
        seen.hosts().filter(is_meant).map(|host| host.site.key).take(limit).collect()
    }
}

fn has_text(host: &FleetHost, text: &str) -> bool {
    [&host.site.key.to_string(), host.site.agent.as_str(), &host.hostname]
        .into_iter()
        .any(|within| within.to_lowercase().contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_after_its_last_key_whether_or_not_that_host_is_still_there() {
        let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| address.parse::<HostKey>().unwrap());
        let cut_at = |limit| {
            let mut keys = all.to_vec();
            let next = cut(&mut keys, limit);
            (keys.len(), next)
        };

        assert_eq!(cut_at(2), (2, Some(all[1])));
        assert_eq!(cut_at(3), (3, None));
        assert_eq!(cut_at(4), (3, None));
    }
}

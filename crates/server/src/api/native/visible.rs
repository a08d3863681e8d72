//! What a caller may see of the fleet, and the state of each host: one definition for sums, lists and what needs
//! attention.

use std::collections::HashSet;

use proctor_api::{HostStatus, HostTrouble};
use proctor_model::{AgentId, Class, Phase};
use proctor_store::{Fleet, FleetFilter, FleetHost, FleetProcess, Health, Millis, ProcessQuery};

use crate::control::{Caller, ConnectionInfo, Control, SeenFleet, is_inside};

pub(super) const DAY_SECS: i64 = 24 * 3600;
pub(super) const CERTIFICATE_DAYS: i64 = 7;
/// As `proctor doctor` judges it.
const CLOCK_OFF_MS: u64 = 30_000;

pub(super) struct Visible<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) at: Millis,
    caller: &'a Caller,
    control: &'a Control,
    /// Without a connection because the relays of their area have none.
    unreachable: HashSet<&'a AgentId>,
}

impl<'a> Visible<'a> {
    pub(super) fn new(SeenFleet { fleet, at }: &'a SeenFleet, caller: &'a Caller, control: &'a Control) -> Self {
        let away = fleet.hosts.iter().filter(|host| !host.online && !host.is_revoked).map(|host| &host.site.agent);
        let unreachable = away.filter(|agent| control.unreachable_area(agent).is_some()).collect();
        Self { fleet, at: *at, caller, control, unreachable }
    }

    pub(super) fn processes(&self) -> Vec<&'a FleetProcess> {
        let scopes = Some(self.caller.permissions.scopes(Class::Read).clone());
        let query = ProcessQuery { scopes, ..ProcessQuery::default() };
        let filter = FleetFilter::new(self.fleet, &query);
        self.fleet.processes.iter().filter(|process| filter.holds(process)).collect()
    }

    pub(super) fn has_host(&self, host: &FleetHost) -> bool {
        is_inside(self.caller.permissions.scopes(Class::Read), host)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &'a FleetHost> {
        self.fleet.hosts.iter().filter(|host| self.has_host(host))
    }

    pub(super) fn status(&self, host: &FleetHost) -> HostStatus {
        match host.online {
            _ if host.site.awaits_approval => HostStatus::AwaitsApproval,
            false if host.is_revoked => HostStatus::Revoked,
            _ if self.is_cordoned(host) => HostStatus::Cordoned,
            true => HostStatus::Online,
            false if self.unreachable.contains(&host.site.agent) => HostStatus::Unreachable,
            false => HostStatus::Away,
        }
    }

    pub(super) fn is_cordoned(&self, host: &FleetHost) -> bool {
        host.site.cordon_at(self.at).is_some()
    }

    /// A host in maintenance, or one that is not let in yet, is nothing to look at.
    pub(super) fn is_watched(&self, host: &FleetHost) -> bool {
        !self.is_cordoned(host) && !host.site.awaits_approval
    }

    /// By how much the clock of a watched host is ahead, where that is too much.
    pub(super) fn clock_off(&self, host: &FleetHost) -> Option<i64> {
        let ahead = self.connection(host)?.clock_ahead_ms;
        ahead.filter(|ahead| ahead.unsigned_abs() > CLOCK_OFF_MS)
    }

    /// When the certificate of a watched host ends, where that is soon; Unix seconds.
    pub(super) fn certificate_ends(&self, host: &FleetHost) -> Option<i64> {
        let soon = self.at / 1000 + CERTIFICATE_DAYS * DAY_SECS;
        self.connection(host)?.certificate_expires_at.filter(|at| *at < soon)
    }

    fn connection(&self, host: &FleetHost) -> Option<ConnectionInfo> {
        (host.online && self.is_watched(host)).then(|| self.control.connection_info(&host.site.agent))
    }

    /// Of a watched host, that its agent's version is not the server's.
    pub(super) fn is_outdated(&self, host: &FleetHost) -> bool {
        let version = &*host.agent_version;
        self.is_watched(host) && !version.is_empty() && version != env!("CARGO_PKG_VERSION")
    }

    pub(super) fn has_trouble(&self, host: &FleetHost, trouble: HostTrouble) -> bool {
        match trouble {
            HostTrouble::CertificateEnds => self.certificate_ends(host).is_some(),
            HostTrouble::ClockOff => self.clock_off(host).is_some(),
            HostTrouble::AgentOutdated => self.is_outdated(host),
        }
    }
}

pub(super) fn is_unhealthy(process: &FleetProcess) -> bool {
    process.phase == Phase::Running && process.health == Health::Unhealthy
}

//! What somebody should look at: a line for each process and kind of trouble, however many hosts it concerns.

use std::collections::BTreeMap;

use proctor_api::{Attention, AttentionKind, Severity};
use proctor_model::Phase;
use proctor_store::{FleetHost, FleetProcess};

use super::overview::{Visible, is_unhealthy};
use crate::control::{ConnectionInfo, Control};

pub(super) const LINES_MAX: usize = 50;
const HOSTS_NAMED: usize = 5;
const DAY_SECS: i64 = 24 * 3600;
const CERTIFICATE_SECS: i64 = 7 * DAY_SECS;
/// As `proctor doctor` judges it.
const CLOCK_OFF_MS: u64 = 30_000;
const CLOCK_WRONG_MS: u64 = 300_000;

/// What is known of agents while they are connected.
#[derive(Default)]
pub(super) struct Agents<'a> {
    pub(super) certificates_ending: Vec<(&'a FleetHost, i64)>,
    clocks_off: Vec<(&'a FleetHost, i64)>,
    now: i64,
}

impl<'a> Agents<'a> {
    /// `now` in Unix seconds.
    pub(super) fn of(seen: &Visible<'a>, control: &Control, now: i64) -> Self {
        let mut agents = Self { now, ..Self::default() };
        for host in seen.hosts().filter(|host| host.online && is_watched(host, now)) {
            let ConnectionInfo { clock_ahead_ms, certificate_expires_at } = control.connection_info(&host.site.agent);
            let clock_off = clock_ahead_ms.filter(|ahead| ahead.unsigned_abs() > CLOCK_OFF_MS);
            agents.clocks_off.extend(clock_off.map(|ahead| (host, ahead)));
            let ending = certificate_expires_at.filter(|at| *at < now + CERTIFICATE_SECS);
            agents.certificates_ending.extend(ending.map(|at| (host, at)));
        }
        agents
    }
}

/// The most severe first, then what concerns the most hosts.
pub(super) fn ranked(seen: &Visible<'_>, agents: &Agents<'_>) -> Vec<Attention> {
    let mut lines: Vec<Attention> = of_processes(seen, agents.now).into_iter().map(Line::finish).collect();
    lines.extend(of_hosts(seen, agents).into_iter().map(Line::finish));
    lines.sort_by(|one, other| {
        let rank = |line: &Attention| (line.severity, std::cmp::Reverse(line.count), line.kind, line.process.clone());
        rank(one).cmp(&rank(other))
    });
    lines
}

/// A host in maintenance, or one that is not let in yet, is nothing to look at.
fn is_watched(host: &FleetHost, now: i64) -> bool {
    host.site.cordon_at(now * 1000).is_none() && !host.site.awaits_approval
}

fn of_processes(seen: &Visible<'_>, now: i64) -> Vec<Line> {
    let mut lines: BTreeMap<(AttentionKind, u32), Line> = BTreeMap::new();
    for process in seen.processes().filter(|process| is_watched(seen.fleet.host(process), now)) {
        for (kind, severity) in troubles(process) {
            let line = lines.entry((kind, process.key)).or_insert_with(|| {
                let name = seen.fleet.key(process).to_string();
                Line::new(kind, severity, Some(name), seen.fleet.reason(process).to_owned())
            });
            line.add(seen.fleet.host(process), Some(process.phase_since).filter(|since| *since > 0));
        }
    }
    lines.into_values().collect()
}

fn troubles(process: &FleetProcess) -> impl Iterator<Item = (AttentionKind, Severity)> {
    let all = [
        (process.phase == Phase::Failed, AttentionKind::Failed, Severity::Critical),
        (process.is_crash_looping(), AttentionKind::CrashLooping, Severity::Critical),
        (process.evicted, AttentionKind::Evicted, Severity::Warning),
        (is_unhealthy(process), AttentionKind::Unhealthy, Severity::Warning),
    ];
    all.into_iter().filter(|(is_so, _, _)| *is_so).map(|(_, kind, severity)| (kind, severity))
}

fn of_hosts(seen: &Visible<'_>, agents: &Agents<'_>) -> Vec<Line> {
    let line = |kind, severity, reason: &str| Line::new(kind, severity, None, reason.to_owned());
    let mut away = line(AttentionKind::HostAway, Severity::Warning, "the agent is not connected");
    let reason = "no relay of the cloud area is connected";
    let mut unreachable = line(AttentionKind::HostUnreachable, Severity::Critical, reason);
    let mut outdated = line(AttentionKind::AgentOutdated, Severity::Notice, "");
    for host in seen.hosts().filter(|host| is_watched(host, agents.now)) {
        if !host.online && !host.is_revoked {
            let line = if seen.is_unreachable(host) { &mut unreachable } else { &mut away };
            line.add(host, Some(host.presence_changed_at / 1000));
        }
        let version = &*host.agent_version;
        if !version.is_empty() && version != env!("CARGO_PKG_VERSION") {
            outdated.attention.reason = format!("version {version}, the server's is {}", env!("CARGO_PKG_VERSION"));
            outdated.add(host, None);
        }
    }
    let mut ending = line(AttentionKind::CertificateEnds, Severity::Warning, "");
    for (host, expires_at) in &agents.certificates_ending {
        if *expires_at < agents.now + DAY_SECS {
            ending.attention.severity = Severity::Critical;
        }
        ending.add(host, None);
    }
    let mut clocks = line(AttentionKind::ClockOff, Severity::Warning, "");
    for (host, ahead) in &agents.clocks_off {
        if ahead.unsigned_abs() > CLOCK_WRONG_MS {
            clocks.attention.severity = Severity::Critical;
        }
        clocks.attention.reason = format!("{} s apart from the server's clock", ahead.unsigned_abs() / 1000);
        clocks.add(host, None);
    }
    [away, unreachable, outdated, ending, clocks].into_iter().filter(|line| line.attention.count > 0).collect()
}

/// A line that grows host by host.
struct Line {
    attention: Attention,
}

impl Line {
    fn new(kind: AttentionKind, severity: Severity, process: Option<String>, reason: String) -> Self {
        let attention =
            Attention { kind, severity, process, host: None, count: 0, hosts: Vec::new(), since: None, reason };
        Self { attention }
    }

    fn add(&mut self, host: &FleetHost, since: Option<i64>) {
        let line = &mut self.attention;
        line.count += 1;
        if line.hosts.len() < HOSTS_NAMED {
            line.hosts.push(host.site.key.to_string());
        }
        line.since = [line.since, since].into_iter().flatten().min();
    }

    fn finish(self) -> Attention {
        let host = self.attention.hosts.first().filter(|_| self.attention.count == 1).cloned();
        Attention { host, ..self.attention }
    }
}

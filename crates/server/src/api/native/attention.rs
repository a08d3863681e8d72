//! What needs attention: one line per process and kind of problem, however many hosts it affects.

use std::collections::BTreeMap;

use proctor_api::{Attention, AttentionKind, HostStatus, Severity};
use proctor_model::{Message, Phase, messages};
use proctor_store::{CRASH_LOOP_STARTS, FleetHost, FleetProcess};

use super::localized::localized;
use super::visible::{CERTIFICATE_DAYS, DAY_SECS, Visible, is_unhealthy};

pub(super) const LINES_MAX: usize = 50;
const HOSTS_NAMED: usize = 5;
/// As `proctor doctor` judges it.
const CLOCK_WRONG_MS: u64 = 300_000;

/// The most severe first, then what concerns the most hosts.
pub(super) fn ranked(seen: &Visible<'_>, processes: &[&FleetProcess]) -> Vec<Attention> {
    let mut lines: Vec<Attention> = of_processes(seen, processes).into_iter().map(Line::finish).collect();
    lines.extend(of_hosts(seen).into_iter().map(Line::finish));
    lines.sort_by(|one, other| {
        let rank = |line: &Attention| (line.severity, std::cmp::Reverse(line.count), line.kind, line.process.clone());
        rank(one).cmp(&rank(other))
    });
    lines
}

fn of_processes(seen: &Visible<'_>, processes: &[&FleetProcess]) -> Vec<Line> {
    let mut lines: BTreeMap<(AttentionKind, u32), Line> = BTreeMap::new();
    for process in processes.iter().filter(|process| seen.is_watched(seen.fleet.host(process))) {
        for (kind, severity) in troubles(process) {
            let line = lines.entry((kind, process.key)).or_insert_with(|| {
                let name = seen.fleet.key(process).to_string();
                Line::new(kind, severity, Some(name), &reason(seen, process, kind))
            });
            line.add(seen.fleet.host(process), Some(process.phase_since).filter(|since| *since > 0));
        }
    }
    lines.into_values().collect()
}

fn reason(seen: &Visible<'_>, process: &FleetProcess, kind: AttentionKind) -> Message {
    match seen.fleet.reason(process) {
        Some(reason) => reason.clone(),
        None if kind == AttentionKind::CrashLooping => messages::restarted_in_a_loop(CRASH_LOOP_STARTS),
        None => Message::default(),
    }
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

fn of_hosts(seen: &Visible<'_>) -> Vec<Line> {
    let line = |kind, severity, reason: Message| Line::new(kind, severity, None, &reason);
    let mut away = line(AttentionKind::HostAway, Severity::Warning, messages::host_agent_away());
    let mut unreachable = line(AttentionKind::HostUnreachable, Severity::Critical, messages::no_relay_of_area());
    let mut waiting = line(AttentionKind::AwaitsApproval, Severity::Notice, messages::new_host_awaits_approval());
    let mut outdated = line(AttentionKind::AgentOutdated, Severity::Notice, Message::default());
    let ending = messages::certificate_ends_within(CERTIFICATE_DAYS);
    let mut ending = line(AttentionKind::CertificateEnds, Severity::Warning, ending);
    let mut clocks = line(AttentionKind::ClockOff, Severity::Warning, Message::default());
    for host in seen.hosts() {
        let since = Some(host.presence_changed_at / 1000);
        match seen.status(host) {
            HostStatus::Away => away.add(host, since),
            HostStatus::Unreachable => unreachable.add(host, since),
            HostStatus::AwaitsApproval => waiting.add(host, None),
            HostStatus::Online | HostStatus::Cordoned | HostStatus::Revoked => {}
        }
        if seen.is_outdated(host) {
            let differs = messages::agent_version_differs(&host.agent_version, env!("CARGO_PKG_VERSION"));
            outdated.attention.why = localized(&differs);
            outdated.add(host, None);
        }
        if let Some(expires_at) = seen.certificate_ends(host) {
            ending.raise(expires_at < seen.at / 1000 + DAY_SECS);
            ending.add(host, None);
        }
        if let Some(ahead) = seen.clock_off(host) {
            clocks.raise(ahead.unsigned_abs() > CLOCK_WRONG_MS);
            clocks.attention.why = localized(&messages::clock_apart(ahead.unsigned_abs() / 1000));
            clocks.add(host, None);
        }
    }
    let lines = [away, unreachable, waiting, outdated, ending, clocks];
    lines.into_iter().filter(|line| line.attention.count > 0).collect()
}

/// A line that grows host by host.
struct Line {
    attention: Attention,
}

impl Line {
    fn new(kind: AttentionKind, severity: Severity, process: Option<String>, reason: &Message) -> Self {
        let (hosts, why) = (Vec::new(), localized(reason));
        Self { attention: Attention { kind, severity, process, host: None, count: 0, hosts, since: None, why } }
    }

    fn raise(&mut self, is_critical: bool) {
        if is_critical {
            self.attention.severity = Severity::Critical;
        }
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

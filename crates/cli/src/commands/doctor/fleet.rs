//! Checks of agents and processes.

use std::collections::{BTreeMap, HashSet};

use futures::TryStreamExt;
use proctor_client::{Client, ClientError, HostQuery, HostView, LIMIT_MAX, ProcessQuery, ProcessView};

use super::{CLOCK_FAIL_SECS, CLOCK_WARN_SECS, Check, DAY_SECS};

/// Number of problems that are listed by name.
const NAMED_MAX: usize = 5;
/// Agents renew their certificates long before this is left.
const AGENT_CERTIFICATE_WARN_DAYS: i64 = 2;
/// What an agent reports for a process that its host policy forbids.
const BY_POLICY: &str = "refused by the host's policy";

pub(super) async fn all(client: &Client, now: i64, checks: &mut Vec<Check>) {
    let query = HostQuery { limit: Some(LIMIT_MAX), ..HostQuery::default() };
    let hosts: Result<Vec<HostView>, ClientError> = client.all_hosts(&query).try_collect().await;
    let mut quiet = HashSet::new();
    match hosts {
        Ok(hosts) => {
            quiet = hosts.iter().filter(|host| !is_watched(host)).map(|host| host.host.clone()).collect();
            checks.extend(maintenance(&hosts));
            let hosts: Vec<HostView> = hosts.into_iter().filter(is_watched).collect();
            if !hosts.is_empty() || quiet.is_empty() {
                checks.push(agents(&hosts));
            }
            checks.extend(relays(&hosts));
            if hosts.iter().any(|host| host.online) {
                checks.push(clocks(&hosts));
                checks.push(certificates(&hosts, now));
            }
            checks.extend(policies(&hosts));
        }
        Err(error) => checks.push(Check::of_error("agents", &error)),
    }
    let query =
        ProcessQuery { phase: Some("failed,waiting".into()), limit: Some(LIMIT_MAX), ..ProcessQuery::default() };
    match client.all_processes(&query).try_collect::<Vec<ProcessView>>().await {
        Ok(mut troubled) => {
            troubled.retain(|process| !quiet.contains(&process.host));
            checks.push(processes(&troubled));
        }
        Err(error) => checks.push(Check::of_error("processes", &error)),
    }
}

/// A host in maintenance raises no alarms, and one that is not approved yet cannot connect.
fn is_watched(host: &HostView) -> bool {
    host.cordon.is_none() && !host.awaits_approval
}

/// Hosts that are not checked; None if there are none.
fn maintenance(hosts: &[HostView]) -> Option<Check> {
    let of = |is_meant: fn(&&HostView) -> bool| -> Vec<&str> {
        hosts.iter().filter(is_meant).map(|host| host.host.as_str()).collect()
    };
    let (cordoned, new) = (of(|host| host.cordon.is_some()), of(|host| host.awaits_approval));
    let said = [(cordoned, "cordoned"), (new, "awaiting approval")]
        .into_iter()
        .filter(|(hosts, _)| !hosts.is_empty())
        .map(|(hosts, what)| format!("{} {what}: {}", hosts.len(), named(&hosts)));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| Check::ok("maintenance", format!("not checked: {}", said.join("; "))))
}

fn agents(hosts: &[HostView]) -> Check {
    let is_offline = |host: &&HostView| !host.online && !host.unreachable;
    let offline: Vec<&str> = hosts.iter().filter(is_offline).map(|host| host.host.as_str()).collect();
    let unreachable = hosts.iter().filter(|host| host.unreachable).count();
    let returning = hosts.iter().filter(|host| host.returning).count();
    match (hosts.len(), offline.len()) {
        (0, _) => Check::warn(
            "agents",
            "there is no host that we may see",
            "proctor token create, then start an agent; or ask for a role on hosts",
        ),
        (all, 0) if returning > 0 => {
            let connected = all - returning - unreachable;
            let found = format!("{connected} of {all} are connected; {returning} may still return");
            Check::warn("agents", found, "the server has just started: look again in some seconds")
        }
        (all, 0) => Check::ok("agents", format!("{} of {all} are connected", all - unreachable)),
        (all, away) => {
            let found = format!("{away} of {all} are not connected: {}", named(&offline));
            Check::warn("agents", found, "see proctor hosts --offline, and the agents' logs")
        }
    }
}

/// Unreachable areas; None if there are none.
fn relays(hosts: &[HostView]) -> Option<Check> {
    let mut areas: BTreeMap<u32, usize> = BTreeMap::new();
    for host in hosts.iter().filter(|host| host.unreachable) {
        *areas.entry(host.cloud).or_default() += 1;
    }
    let listed: Vec<String> =
        areas.iter().map(|(cloud, hosts)| format!("cloud area {cloud} ({hosts} hosts)")).collect();
    let found = format!("unreachable, no relay is connected: {}", named(&listed));
    let advice = "see proctor relays list, and the relays' logs; agents there supervise on";
    (!listed.is_empty()).then(|| Check::fail("relays", found, advice))
}

/// As they were when the agents connected.
fn clocks(hosts: &[HostView]) -> Check {
    const CHECK: &str = "agents' clocks";
    let offsets: Vec<(&HostView, i64)> =
        hosts.iter().filter_map(|host| Some((host, host.clock_ahead_ms?.saturating_abs() / 1000))).collect();
    if offsets.is_empty() {
        return Check::unchecked(CHECK, "no connected agent reports its clock");
    }
    let apart: Vec<String> = offsets
        .iter()
        .filter(|(_, seconds)| *seconds > CLOCK_WARN_SECS)
        .map(|(host, seconds)| format!("{} by {seconds} s", host.host))
        .collect();
    let worst = offsets.iter().map(|(_, seconds)| *seconds).max().unwrap_or_default();
    let advice = "set the clocks by NTP: schedules and times of events are wrong there";
    match worst {
        0..=CLOCK_WARN_SECS => Check::ok(CHECK, format!("{} agree with the server's", offsets.len())),
        ..=CLOCK_FAIL_SECS => Check::warn(CHECK, format!("differ from the server's: {}", named(&apart)), advice),
        _ => Check::fail(CHECK, format!("differ from the server's: {}", named(&apart)), advice),
    }
}

fn certificates(hosts: &[HostView], now: i64) -> Check {
    const CHECK: &str = "agents' certificates";
    let remaining: Vec<(&HostView, i64)> = hosts
        .iter()
        .filter_map(|host| Some((host, (host.certificate_expires_at? - now).div_euclid(DAY_SECS))))
        .collect();
    let Some(least) = remaining.iter().map(|(_, days)| *days).min() else {
        return Check::unchecked(CHECK, "the server does not say when they expire");
    };
    let ending: Vec<String> = remaining
        .iter()
        .filter(|(_, days)| *days < AGENT_CERTIFICATE_WARN_DAYS)
        .map(|(host, days)| format!("{} in {days} days", host.host))
        .collect();
    if ending.is_empty() {
        return Check::ok(CHECK, format!("{} of connected agents, the first expires in {least} days", remaining.len()));
    }
    let advice = "read the logs of these agents: they should have renewed them";
    Check::warn(CHECK, format!("expire soon: {}", named(&ending)), advice)
}

/// None if no agent reports it.
fn policies(hosts: &[HostView]) -> Option<Check> {
    let policies: Vec<&str> = hosts.iter().filter_map(|host| host.facts.policy.as_deref()).collect();
    let with = policies.iter().filter(|policy| !policy.is_empty()).count();
    let found = match (with, policies.len()) {
        (_, 0) => return None,
        (0, _) => "no host has a policy: its agent does what its server says".to_owned(),
        (with, all) => format!("in force on {with} of {all} hosts"),
    };
    Some(Check::ok("host policies", found))
}

fn processes(troubled: &[ProcessView]) -> Check {
    let label = |process: &ProcessView| format!("{} on {}", process.process, process.host);
    let is_failed = |process: &&ProcessView| process.phase == proctor_model::Phase::Failed;
    let refused: Vec<String> =
        troubled.iter().filter(|process| process.reason.contains(BY_POLICY)).map(label).collect();
    if !refused.is_empty() {
        let found = format!("{} refused by the policy of their host: {}", refused.len(), named(&refused));
        return Check::warn("processes", found, "ask the owner of the host, or change the process");
    }
    let failed: Vec<String> = troubled.iter().filter(is_failed).map(label).collect();
    if failed.is_empty() {
        return Check::ok("processes", "none has failed");
    }
    let found = format!("{} failed: {}", failed.len(), named(&failed));
    Check::warn("processes", found, "see proctor ps --phase failed, and proctor events")
}

fn named(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    let more = names.len() - shown.len();
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::State;
    use super::*;

    fn host(change: Value) -> HostView {
        let mut host = json!({
            "host": "0:10.0.0.1", "cloud": 0, "supplier": 0, "ip": "10.0.0.1", "agent": "a-1", "online": true,
            "enrolled_at": 1, "presence_changed_at": 90,
            "facts": { "hostname": "web", "os": "Linux", "arch": "x86_64", "cpus": 4, "memory_bytes": 1,
                       "agent_version": "0.1.0" },
        });
        for (name, value) in change.as_object().unwrap() {
            host[name] = value.clone();
        }
        serde_json::from_value(host).unwrap()
    }

    #[test]
    fn agents_that_are_away_are_named() {
        assert_eq!(agents(&[]).state, State::Warn);
        assert_eq!(agents(&[host(json!({}))]).found, "1 of 1 are connected");
        let returning = agents(&[host(json!({})), host(json!({ "returning": true }))]);
        assert_eq!(returning.found, "1 of 2 are connected; 1 may still return");
        let away = agents(&[host(json!({})), host(json!({ "online": false, "host": "0:10.0.0.2" }))]);
        assert_eq!((away.state, away.found.as_str()), (State::Warn, "1 of 2 are not connected: 0:10.0.0.2"));
    }

    #[test]
    fn hosts_in_maintenance_and_new_ones_are_named_and_not_looked_at() {
        let cordon = json!({ "reason": "new disk", "by": "ada", "since": 1 });
        let cordoned = host(json!({ "online": false, "host": "0:10.0.0.2", "cordon": cordon }));
        let new = host(json!({ "online": false, "host": "0:10.0.0.3", "awaits_approval": true }));

        assert_eq!([&cordoned, &new, &host(json!({}))].map(is_watched), [false, false, true]);
        let check = maintenance(&[cordoned, new, host(json!({}))]).unwrap();
        assert_eq!(check.state, State::Ok);
        assert_eq!(check.found, "not checked: 1 cordoned: 0:10.0.0.2; 1 awaiting approval: 0:10.0.0.3");
        assert_eq!(maintenance(&[host(json!({}))]), None);
    }

    #[test]
    fn hosts_behind_lost_relays_are_unreachable_and_not_away() {
        let cut_off = host(json!({ "online": false, "unreachable": true, "cloud": 3, "host": "3:10.0.0.2" }));
        let hosts = [host(json!({})), cut_off.clone(), cut_off];

        assert_eq!((agents(&hosts).state, agents(&hosts).found.as_str()), (State::Ok, "1 of 3 are connected"));
        let check = relays(&hosts).unwrap();
        assert_eq!(check.state, State::Fail);
        assert_eq!(check.found, "unreachable, no relay is connected: cloud area 3 (2 hosts)");
        assert_eq!(relays(&hosts[..1]), None);
    }

    #[test]
    fn clocks_of_agents_that_differ_are_reported() {
        let at = |ms: i64| clocks(&[host(json!({ "clock_ahead_ms": 5 })), host(json!({ "clock_ahead_ms": ms }))]);

        assert_eq!(clocks(&[host(json!({}))]).state, State::Unchecked);
        assert_eq!((at(-30_000).state, at(-31_000).state, at(301_000).state), (State::Ok, State::Warn, State::Fail));
        assert_eq!(at(-31_000).found, "differ from the server's: 0:10.0.0.1 by 31 s");
    }

    #[test]
    fn certificates_of_agents_that_expire_soon_are_reported() {
        let in_days = |days: i64| certificates(&[host(json!({ "certificate_expires_at": days * DAY_SECS }))], 0);

        assert_eq!((in_days(30).state, in_days(1).state, in_days(-1).state), (State::Ok, State::Warn, State::Warn));
        assert_eq!(certificates(&[host(json!({}))], 0).state, State::Unchecked);
    }

    #[test]
    fn policies_are_counted_where_agents_tell() {
        let with = |policy: Value| {
            let mut host = host(json!({}));
            host.facts.policy = serde_json::from_value(policy).unwrap();
            host
        };

        assert_eq!(policies(&[with(json!(null))]), None);
        let found = policies(&[with(json!("")), with(json!("/etc/p.toml"))]).unwrap().found;
        assert_eq!(found, "in force on 1 of 2 hosts");
    }

    #[test]
    fn of_many_only_some_are_named() {
        assert_eq!(named(&["a", "b"]), "a, b");
        assert_eq!(named(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}

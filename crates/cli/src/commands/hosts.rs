//! `proctor hosts`.

use anyhow::Result;
use futures::TryStreamExt;
use proctor_client::{CordonView, HostQuery, HostView, LIMIT_MAX, LinkView};
use proctor_runtime::clock;

use super::{CommandEnd, Session, businesses};
use crate::args::HostsArgs;
use crate::output::{self, CellStyle, TextTable, ago, moment, one_line, or_dash, plain};

pub(super) async fn run(session: &Session, args: HostsArgs) -> Result<CommandEnd> {
    if let Some(command) = args.command {
        return businesses::hosts(session, command).await;
    }
    let query = HostQuery {
        business: args.business,
        cloud: args.cloud_id,
        online: args.offline.then_some(false),
        limit: Some(LIMIT_MAX),
        ..HostQuery::default()
    };
    let fetch = async || {
        let mut hosts: Vec<HostView> = session.client.all_hosts(&query).try_collect().await?;
        // The server sorts addresses as text.
        hosts.sort_by_key(|host| (host.cloud, host.ip));
        Ok(hosts)
    };
    session.list(args.watch, fetch, |hosts| table(hosts, clock::unix_millis())).await
}

pub(super) async fn show(session: &Session, host: &str) -> Result<CommandEnd> {
    let host = session.client.host(host).await?;
    output::print_or(session.output, &host, || described(&host, clock::unix_millis()))?;
    Ok(CommandEnd::Success)
}

/// One fact per line; `-` if unknown.
fn described(host: &HostView, now: i64) -> String {
    let (presence, _) = presence(host);
    let facts = &host.facts;
    let or_none = |value: Option<String>| or_dash(value.unwrap_or_default());
    let lines = [
        ("agent", host.agent.to_string()),
        ("state", format!("{presence} for {}", ago(host.presence_changed_at, now))),
        ("link", or_none(host.link.as_ref().map(|link| link_text(link, now)))),
        ("clock ahead", or_none(host.clock_ahead_ms.map(|millis| format!("{millis} ms")))),
        ("certificate until", or_none(host.certificate_expires_at.map(moment))),
        ("certificate revoked", or_none(host.revoked_at.map(moment))),
        ("key fingerprint", or_dash(host.key_fingerprint.clone())),
        ("business", or_none(host.business.map(|id| id.to_string()))),
        ("maintenance", or_none(host.cordon.as_ref().map(maintenance))),
        ("enrolled", moment(host.enrolled_at)),
        ("hostname", or_dash(facts.hostname.clone())),
        ("system", or_dash(format!("{} {}", facts.os, facts.arch))),
        ("cpus", facts.cpus.to_string()),
        ("memory", mebibytes(facts.memory_bytes)),
        ("agent version", or_dash(facts.agent_version.clone())),
        ("policy", or_none(facts.policy.clone())),
    ];
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("  {name:width$}  {}\n", one_line(value));
    format!("{}\n{}", host.host, lines.iter().map(line).collect::<String>())
}

fn link_text(link: &LinkView, now: i64) -> String {
    let millis = link.rtt_us as f64 / 1000.0;
    format!("answers in {millis:.1} ms, measured {} ago", ago(link.measured_at, now))
}

fn presence(host: &HostView) -> (&'static str, CellStyle) {
    match (host.online, host.returning) {
        _ if host.awaits_approval => ("pending", CellStyle::Warning),
        (true, false) => ("online", CellStyle::Good),
        (true, true) => ("returning", CellStyle::Warning),
        (false, _) if host.unreachable => ("unreachable", CellStyle::Warning),
        (false, _) => ("offline", CellStyle::Bad),
    }
}

fn table(hosts: &[HostView], now: i64) -> TextTable {
    let headers = [
        "HOST",
        "AGENT",
        "STATE",
        "SINCE",
        "HOSTNAME",
        "OS",
        "CPUS",
        "MEMORY",
        "VERSION",
        "BUSINESS",
        "MAINTENANCE",
        "ENROLLED",
    ];
    let mut table = TextTable::new(&headers).right(&[6, 7]).only_wide(&[11]);
    for host in hosts {
        let (presence, style) = presence(host);
        let state = match &host.cordon {
            Some(_) => (format!("{presence},cordoned"), CellStyle::Warning),
            None => (presence.to_owned(), style),
        };
        table.row([
            plain(&host.host),
            plain(&host.agent),
            state,
            plain(ago(host.presence_changed_at, now)),
            plain(or_dash(host.facts.hostname.clone())),
            plain(or_dash(format!("{} {}", host.facts.os, host.facts.arch))),
            plain(host.facts.cpus),
            plain(mebibytes(host.facts.memory_bytes)),
            plain(or_dash(host.facts.agent_version.clone())),
            plain(or_dash(host.business.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(host.cordon.as_ref().map(maintenance).unwrap_or_default())),
            plain(moment(host.enrolled_at)),
        ]);
    }
    table
}

fn maintenance(cordon: &CordonView) -> String {
    match cordon.until {
        Some(until) => format!("{} (until {})", cordon.reason, moment(until)),
        None => cordon.reason.clone(),
    }
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes / (1024 * 1024))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_is_one_line() {
        let hosts: Vec<HostView> = serde_json::from_value(json!([{
            "host": "0:10.0.0.1", "cloud": 0, "supplier": 0, "ip": "10.0.0.1", "agent": "a-1", "online": false,
            "enrolled_at": 1, "presence_changed_at": 90,
            "facts": { "hostname": "web", "os": "Linux", "arch": "x86_64", "cpus": 4,
                       "memory_bytes": 1_073_741_824_u64, "agent_version": "0.1.0" },
        }]))
        .unwrap();

        let text = table(&hosts, 100_000).to_text();

        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            ["0:10.0.0.1", "a-1", "offline", "10s", "web", "Linux", "x86_64", "4", "1024M", "0.1.0", "-", "-"]
        );
    }

    #[test]
    fn a_host_is_described_with_the_time_that_its_link_takes() {
        let host: HostView = serde_json::from_value(json!({
            "host": "0:10.0.0.1", "cloud": 0, "supplier": 0, "ip": "10.0.0.1", "agent": "a-1", "online": true,
            "enrolled_at": 1, "presence_changed_at": 90, "link": { "rtt_us": 12_345, "measured_at": 98 },
        }))
        .unwrap();

        let text = described(&host, 100_000);

        assert!(text.starts_with("0:10.0.0.1\n"), "{text}");
        assert!(text.contains("link                 answers in 12.3 ms, measured 2s ago\n"), "{text}");
        assert!(text.contains("state                online for 10s\n"), "{text}");
    }

    #[test]
    fn a_host_in_maintenance_and_one_that_waits_are_told_apart() {
        let host = |more: serde_json::Value| {
            let mut host = json!({ "host": "0:10.0.0.1", "cloud": 0, "supplier": 0, "ip": "10.0.0.1", "agent": "a-1",
                                   "online": true, "enrolled_at": 1, "presence_changed_at": 90 });
            host.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<HostView>(host).unwrap()
        };
        let cordoned = host(json!({ "cordon": { "reason": "new disk", "by": "user ada", "since": 1, "until": 5 } }));
        let waiting = host(json!({ "online": false, "awaits_approval": true }));

        let text = table(&[cordoned, waiting], 100_000).to_text();

        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("online,cordoned") && lines[1].contains("new disk (until 1970"), "{text}");
        assert!(lines[2].contains("pending"), "{text}");
    }
}

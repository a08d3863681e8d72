//! `proctor hosts cordon|uncordon|approve`.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use proctor_client::{ApproveRequest, CordonRequest};

use super::businesses::HostArg;
use super::{CommandEnd, Session};
use crate::args::parse_duration;
use crate::output::{self, moment};

#[derive(Debug, Args)]
pub(crate) struct CordonArgs {
    /// IP addresses, CLOUD:IP or agent ids
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    /// Why, in one line; callers see it where a start is refused
    #[arg(long, env = "PROCTOR_REASON", value_name = "TEXT")]
    reason: String,
    /// When the cordon ends, such as 2030-01-02T03:04:05Z
    #[arg(long, env = "PROCTOR_UNTIL", value_name = "TIME", conflicts_with = "duration", value_parser = parse_time)]
    until: Option<i64>,
    /// How long the cordon lasts: a number with s, m, h or d
    #[arg(long = "for", env = "PROCTOR_FOR", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ManyHosts {
    /// IP addresses, CLOUD:IP or agent ids
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    host: HostArg,
    /// Approve only the key with this fingerprint, which `proctor-agent doctor` shows on the host
    #[arg(long, env = "PROCTOR_KEY", value_name = "SHA256")]
    key: Option<String>,
}

/// Unix seconds.
fn parse_time(text: &str) -> Result<i64, String> {
    let bad = |_| format!("'{text}' is not a time such as 2030-01-02T03:04:05Z or 2030-01-02T03:04:05+08:00");
    text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second).map_err(bad)
}

pub(super) async fn cordon(session: &Session, args: CordonArgs) -> Result<CommandEnd> {
    let CordonArgs { hosts, reason, until, duration } = args;
    let request = CordonRequest { reason, until, ttl_secs: duration.map(|duration| duration.as_secs()) };
    for host in hosts {
        let cordon = session.client.cordon_host(&host, &request).await?;
        let end =
            cordon.until.map_or_else(|| "until it is uncordoned".to_owned(), |end| format!("until {}", moment(end)));
        output::print_or(session.output, &cordon, || {
            format!("{host} takes no starts from the fleet and raises no alarms {end}\n")
        })?;
    }
    Ok(CommandEnd::Success)
}

pub(super) async fn uncordon(session: &Session, args: ManyHosts) -> Result<CommandEnd> {
    for host in args.hosts {
        session.client.uncordon_host(&host).await?;
        eprintln!("{host} takes starts again.");
    }
    Ok(CommandEnd::Success)
}

pub(super) async fn approve(session: &Session, args: ApproveArgs) -> Result<CommandEnd> {
    let ApproveArgs { host: HostArg { host }, key } = args;
    if let Some(key) = &key {
        // A server of an earlier version does not compare it.
        let found = session.client.host(&host).await?.key_fingerprint;
        if !found.eq_ignore_ascii_case(&key.replace(':', "")) {
            bail!(
                "host {host} enrolled with key {found}, not with {key}: somebody else may have used its join token; \
                 compare with `proctor-agent doctor` on the host"
            );
        }
    }
    let approved = session.client.approve_host(&host, &ApproveRequest { key }).await?;
    output::print_or(session.output, &approved, || {
        format!("{} is approved; its agent connects within a minute\n", approved.host)
    })?;
    Ok(CommandEnd::Success)
}

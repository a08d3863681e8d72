//! `proctor hosts unserved|allow-rejoin|revoke|remove`.

use anyhow::Result;
use proctor_client::UnservedHostView;
use proctor_runtime::clock;

use super::businesses::{HostArg, RejoinArgs};
use super::{CommandEnd, Session};
use crate::output::{self, TextTable, ago, moment, or_dash, plain};

pub(super) async fn unserved(session: &Session) -> Result<CommandEnd> {
    let hosts = session.client.unserved_hosts().await?;
    let now = clock::unix_millis();
    output::print(session.output, &hosts, |hosts| table(hosts, now))?;
    Ok(CommandEnd::Success)
}

fn table(hosts: &[UnservedHostView], now: i64) -> TextTable {
    let mut table = TextTable::new(&["HOST", "SINCE", "PROCESSES", "BUSINESS", "REVOKED", "REJOIN UNTIL"]).right(&[2]);
    for host in hosts {
        table.row([
            plain(&host.host),
            plain(ago(host.since, now)),
            plain(host.processes),
            plain(or_dash(host.business.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(host.revoked_at.map(moment).unwrap_or_default())),
            plain(or_dash(host.rejoin_until.map(moment).unwrap_or_default())),
        ]);
    }
    table
}

pub(super) async fn allow_rejoin(session: &Session, args: RejoinArgs) -> Result<CommandEnd> {
    let RejoinArgs { host, ttl, withdraw } = args;
    if withdraw {
        session.client.withdraw_rejoin(&host).await?;
        eprintln!("Host {host} accepts only its own key again.");
        return Ok(CommandEnd::Success);
    }
    let allowed = session.client.allow_rejoin(&host, ttl.as_secs()).await?;
    let until = moment(allowed.rejoin_until);
    output::print_or(session.output, &allowed, || format!("{} may rejoin once until {until}\n", allowed.host))?;
    Ok(CommandEnd::Success)
}

pub(super) async fn revoke(session: &Session, args: HostArg) -> Result<CommandEnd> {
    let HostArg { host } = args;
    session.client.revoke_host(&host).await?;
    eprintln!("The certificate of host {host} is revoked. To bring the host back: remove the identity directory from");
    eprintln!("its agent's state directory and start it with a token of `proctor token create --host {host}`.");
    Ok(CommandEnd::Success)
}

pub(super) async fn remove(session: &Session, args: HostArg) -> Result<CommandEnd> {
    let HostArg { host } = args;
    session.client.remove_host(&host).await?;
    eprintln!("Host {host} is removed. Its agent keeps supervising until it is stopped there.");
    Ok(CommandEnd::Success)
}

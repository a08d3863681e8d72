//! `proctor hosts allow-rejoin|revoke|remove`.

use anyhow::Result;

use super::businesses::{HostArg, RejoinArgs};
use super::{CommandEnd, Session};
use crate::output::{self, moment};

pub(super) async fn allow_rejoin(session: &Session, args: RejoinArgs) -> Result<CommandEnd> {
    let RejoinArgs { host, ttl, withdraw } = args;
    if withdraw {
        session.client.withdraw_rejoin(&host).await?;
        eprintln!("Host {host} opens to its own key only.");
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
    eprintln!("Host {host} is removed. Its agent goes on with what it manages until it is stopped there.");
    Ok(CommandEnd::Success)
}

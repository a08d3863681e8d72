//! `proctor token create`, `proctor app create`, `proctor app rotate` and `proctor keys rotate-signing`: on the store beside a running
//! server, or through its API, audited either way. Only the secret goes to stdout, so that scripts can catch it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use proctor_client::{AppQuery, Client, CreatedApp, CreatedToken, NewApp, NewToken};
use proctor_server::OldKey;
use proctor_server::admin::{AppCode, AppOptions, LocalAdmin, TokenRequest};

use crate::args::{AppArgs, Connection, RotateSigningArgs, StoreArgs, TokenArgs};
use crate::commands::{CommandEnd, RotateArgs};
use crate::{output, profile, serve};

/// Where an administrator's command takes effect.
enum Backend {
    Store { dir: PathBuf, migrate: bool },
    Server(Client),
}

impl Backend {
    /// In this order: a data directory that was given, a server or profile that was given, the default data
    /// directory if a server has used it, and finally the default profile.
    fn find(StoreArgs { data_dir, migrate }: StoreArgs, connection: &Connection) -> Result<Self> {
        if let Some(dir) = data_dir {
            return Ok(Self::Store { dir, migrate });
        }
        let asks_a_server = connection.server.is_some() || connection.profile.is_some();
        let usual = serve::default_dir().ok().filter(|dir| serve::store_file(dir).exists());
        match usual {
            Some(dir) if !asks_a_server => Ok(Self::Store { dir, migrate }),
            Some(_) | None => Ok(Self::Server(profile::connect(connection)?)),
        }
    }
}

pub(crate) async fn create_token(args: TokenArgs, connection: &Connection) -> Result<CommandEnd> {
    let TokenArgs { uses, ttl, cloud_id, host, business, relay, store } = args;
    let request = TokenRequest::new(uses, ttl, cloud_id)?.placing(business).naming(host)?.for_relays(relay)?;
    let created = match Backend::find(store, connection)? {
        Backend::Store { dir, migrate } => {
            let (token, expires_at) = local(&dir, migrate).await?.create_token(request).await?;
            CreatedToken { id: token.id.clone(), token: token.to_string(), expires_at: expires_at / 1000 }
        }
        Backend::Server(client) => {
            let host = host.map(|host| host.to_string());
            client.create_token(&NewToken { uses, ttl_secs: ttl.as_secs(), cloud_id, business, host, relay }).await?
        }
    };
    output::print_or(connection.output, &created, || format!("{}\n", created.token))?;
    let end = output::moment(created.expires_at);
    if let (true, Some(cloud)) = (relay, cloud_id) {
        eprintln!(
            "Good for {uses} relay{} of cloud area {cloud} until {end}. In that area:",
            if uses == 1 { "" } else { "s" }
        );
        eprintln!("  PROCTOR_TOKEN=TOKEN proctor relay --upstream HOST:PORT --cloud-id {cloud}");
        return Ok(CommandEnd::Success);
    }
    eprintln!("Good for {uses} agent{} until {end}. On the new host:", if uses == 1 { "" } else { "s" });
    eprintln!("  PROCTOR_TOKEN=TOKEN proctor-agent --server HOST:PORT --state-dir /var/lib/proctor-agent");
    eprintln!("`proctor join-command` prints one line that also fetches the program.");
    Ok(CommandEnd::Success)
}

pub(crate) async fn create_app(args: AppArgs, connection: &Connection) -> Result<CommandEnd> {
    let AppArgs { code, trusted, signing, roles, store } = args;
    let code: AppCode = code.parse()?;
    let created = match Backend::find(store, connection)? {
        Backend::Store { .. } if !roles.is_empty() => {
            bail!("--role needs a running server: give --server and leave --data-dir out")
        }
        Backend::Store { dir, migrate } => {
            let secret = local(&dir, migrate).await?.create_app(&code, AppOptions { trusted, signing }).await?;
            CreatedApp { code: code.to_string(), secret, trusted }
        }
        Backend::Server(client) => {
            let app = NewApp { code: code.to_string(), trusted, roles, signatures: signing };
            client.create_app(&app).await?
        }
    };
    output::print_or(connection.output, &created, || format!("{}\n", created.secret))?;
    let kind = if trusted { "trusted app" } else { "app" };
    eprintln!("This is the secret of the {kind} {code}. It is not shown again; `proctor app rotate` replaces it.");
    Ok(CommandEnd::Success)
}

pub(crate) async fn rotate_app(args: RotateArgs, connection: &Connection) -> Result<CommandEnd> {
    let RotateArgs { code, signing, store } = args;
    let signing = signing.then_some(true);
    let rotated = match Backend::find(store, connection)? {
        Backend::Store { dir, migrate } => {
            let (app, secret) = local(&dir, migrate).await?.rotate_app(&code.parse()?, signing).await?;
            CreatedApp { code: app.code, secret, trusted: app.trusted }
        }
        Backend::Server(client) => client.rotate_app_secret(&code, &AppQuery { signatures: signing }).await?,
    };
    output::print_or(connection.output, &rotated, || format!("{}\n", rotated.secret))?;
    eprintln!("This is the new secret of app {code}. It is not shown again; the old one no longer works.");
    Ok(CommandEnd::Success)
}

pub(crate) async fn rotate_signing(args: RotateSigningArgs) -> Result<CommandEnd> {
    let RotateSigningArgs { refuse_old, data_dir, migrate } = args;
    let dir = data_dir.map_or_else(serve::default_dir, Ok)?;
    let old = if refuse_old { OldKey::Refused } else { OldKey::Accepted };
    let number = local(&dir, migrate).await?.rotate_signing_key(old, 0).await?;
    output::write_out(&format!("signing key {number}\n"))?;
    let effect = if refuse_old { "agents refuse every older key" } else { "agents accept the key before it, too" };
    eprintln!("Once they have received it, {effect}. A server running on this store signs with it within seconds.");
    Ok(CommandEnd::Success)
}

async fn local(dir: &Path, migrate: bool) -> Result<LocalAdmin> {
    Ok(LocalAdmin::new(serve::open_store_beside(dir, migrate).await?, &serve::system_user()))
}

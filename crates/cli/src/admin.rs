//! `proctor token create` and `proctor app create`: on the store beside a running server, or
//! through its API. Only the secret goes to stdout, so that scripts can catch it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use proctor_client::{Client, CreatedApp, CreatedToken, NewApp, NewToken};
use proctor_server::admin::{self, AppCode, AppOptions, TokenRequest};

use crate::args::{AppArgs, Connection, TokenArgs};
use crate::commands::Ended;
use crate::{output, profile, serve};

/// Where an administrator's command takes effect.
enum Place {
    Store(PathBuf),
    Server(Client),
}

impl Place {
    /// A data directory that is given goes first, then a server or profile that is given, then the
    /// usual data directory if a server has been there, and at last the usual profile.
    fn find(data_dir: Option<PathBuf>, connection: &Connection) -> Result<Self> {
        if let Some(dir) = data_dir {
            return Ok(Self::Store(dir));
        }
        let asks_a_server = connection.server.is_some() || connection.profile.is_some();
        let usual = serve::default_dir().ok().filter(|dir| serve::store_file(dir).exists());
        match usual {
            Some(dir) if !asks_a_server => Ok(Self::Store(dir)),
            Some(_) | None => Ok(Self::Server(profile::connect(connection)?)),
        }
    }
}

pub(crate) async fn create_token(args: TokenArgs, connection: &Connection) -> Result<Ended> {
    let TokenArgs { uses, ttl, cloud_id, business, data_dir } = args;
    let request = TokenRequest::new(uses, ttl, cloud_id)?.placing(business);
    let created = match Place::find(data_dir, connection)? {
        Place::Store(dir) => {
            let store = serve::open_store_beside(&dir).await?;
            let (token, expires_at) = admin::create_token(&store, request).await?;
            CreatedToken { token: token.to_string(), expires_at: expires_at / 1000 }
        }
        Place::Server(client) => {
            client.create_token(&NewToken { uses, ttl_secs: ttl.as_secs(), cloud_id, business }).await?
        }
    };
    output::print_or(connection.output, &created, || format!("{}\n", created.token))?;
    let end = output::moment(created.expires_at);
    eprintln!("Good for {uses} agent{} until {end}. On the new host:", if uses == 1 { "" } else { "s" });
    eprintln!("  proctor-agent --server HOST:PORT --token TOKEN --state-dir /var/lib/proctor-agent");
    Ok(Ended::Well)
}

pub(crate) async fn create_app(args: AppArgs, connection: &Connection) -> Result<Ended> {
    let AppArgs { code, trusted, signing, roles, data_dir } = args;
    let code: AppCode = code.parse()?;
    let created = match Place::find(data_dir, connection)? {
        Place::Store(_) if !roles.is_empty() => {
            bail!("--role needs a running server: give --server and leave --data-dir out")
        }
        Place::Store(dir) => {
            let store = serve::open_store_beside(&dir).await?;
            let secret = admin::renew_app(&store, &code, AppOptions { trusted, signing }).await?;
            CreatedApp { code: code.to_string(), secret, trusted }
        }
        Place::Server(client) => {
            let app = NewApp { code: code.to_string(), trusted, roles, signatures: signing };
            client.create_app(&app).await?
        }
    };
    output::print_or(connection.output, &created, || format!("{}\n", created.secret))?;
    let kind = if trusted { "trusted app" } else { "app" };
    eprintln!("This is the secret of the {kind} {code}. It is not shown again; a new one replaces it.");
    Ok(Ended::Well)
}

//! `proctor dev`: server, local agent and store in one process, and a demo process.
//!
//! Promised: the agent talks to the server over the real link; the text on stdout is printed once everything is up,
//! and every command in it works when pasted; supervised processes outlive the program and are supervised again at
//! the next start on the same data directory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use proctor_model::{AgentId, HostKey};
use proctor_pki::random_secret;
use proctor_runtime::Tasks;
use proctor_server::admin::{AppCode, AppOptions, LocalAdmin, TokenRequest};
use proctor_server::control::{Caller, Control, Retention};
use proctor_server::gateway::LinkPolicy;
use proctor_server::{Options, Server};
use proctor_store::Store;
use tokio::sync::oneshot;

use crate::args::{Connection, DevArgs};
use crate::commands::CommandEnd;
use crate::demo::Demo;
use crate::logging::note;
use crate::profile::{self, Profile};
use crate::serve::{self, StopSignal};

mod welcome;

const APP_CODE: &str = "dev";
const USER: &str = "admin";
const PROFILE_FILE: &str = "profile.toml";
const HOST: HostKey = HostKey { cloud: 0, supplier: 0, ip: IpAddr::V4(Ipv4Addr::LOCALHOST) };
const TOKEN_TTL: Duration = Duration::from_secs(600);
const CONNECT_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

pub(crate) async fn run(args: DevArgs, connection: &Connection) -> Result<CommandEnd> {
    let mut stop = StopSignal::install()?;
    let tasks = Tasks::default();
    let ended = tokio::select! {
        failed = Box::pin(serve(args, connection, &tasks)) => failed.map(|never| match never {}),
        () = stop.received() => Ok(CommandEnd::Success),
        failed = tasks.failed() => Err(failed.into()),
    };
    note("proctor: stopping; supervised processes live on");
    serve::end(&tasks).await;
    ended
}

/// Starts everything, prints the welcome text, and then serves until the local agent fails.
async fn serve(args: DevArgs, connection: &Connection, tasks: &Tasks) -> Result<std::convert::Infallible> {
    args.check_plain()?;
    let dir = prepare_dir(args.data_dir)?;
    let user = profile::current_user().context("the account that runs this program has no name")?;
    let demo = Demo::prepare(dir.join("demo"), user.clone())?;
    let store = serve::open_store(&dir).await?;
    let mut profile = app(&dir, connection, &store).await?;
    LocalAdmin::new(store.clone(), &serve::system_user()).ensure_admin(USER).await?;

    let agent_dir = dir.join("agent");
    let agent = proctor_agent::enrolled_id(&agent_dir).map_or_else(new_agent_id, Ok)?;
    let mut border = args.border.settings(proctor_host::descriptors::raise())?;
    border.download_dir = args.download_dir;
    let retention = Retention { audit_archive: Some(dir.join("audit")), ..Retention::default() };
    let options = Options {
        http: args.http,
        link: args.link,
        wait_for: Some(agent.clone()),
        border,
        tls: None,
        retention,
        link_policy: LinkPolicy::default(),
        traces: proctor_traces::Traces::default(),
    };
    let server = Server::start(options, store.clone(), tasks).await?;
    profile.server = Some(format!("http://{}", reachable(server.http)));
    let profile_file = dir.join(PROFILE_FILE);
    profile.write(&profile_file)?;

    let mut failed = start_agent(&server, &agent, &agent_dir, &store, tasks).await?;
    tokio::select! {
        ready = ready(&server.control, &agent, &demo) => ready?,
        error = &mut failed => return Err(agent_failed(error)),
    }
    let console = server.sign_in_path(USER).await?.context("the user of the console is gone")?;
    let welcome = welcome::Welcome { server: &server, dir: &dir, profile: &profile, demo: &demo, user: &user, console };
    // Everything is up; that nobody can read about it is no reason to stop.
    if let Err(error) = crate::output::write_out(&welcome.text()?) {
        tracing::warn!("{error:#}");
    }
    Err(agent_failed(failed.await))
}

fn prepare_dir(given: Option<PathBuf>) -> Result<PathBuf> {
    let dir = given.map_or_else(|| serve::below_data_home("proctor/dev"), Ok)?;
    serve::make_dir(&dir)?;
    dir.canonicalize().with_context(|| format!("cannot use the directory {}", dir.display()))
}

/// The trusted app: as given, otherwise from the profile, otherwise a new one.
async fn app(dir: &Path, connection: &Connection, store: &Arc<dyn Store>) -> Result<Profile> {
    let kept = Profile::read(&dir.join(PROFILE_FILE))?.unwrap_or_default();
    let code = connection.app_code.clone().or_else(|| kept.app_code.clone()).unwrap_or_else(|| APP_CODE.to_owned());
    // The stored secret belongs to the stored app.
    let kept_secret = kept.app_secret.filter(|_| kept.app_code.as_deref() == Some(code.as_str()));
    let secret = connection.app_secret.clone().or(kept_secret).unwrap_or_else(random_secret);
    let app_code: AppCode = code.parse().context("cannot use the app code")?;
    let local = LocalAdmin::new(store.clone(), &serve::system_user());
    local.ensure_app(&app_code, &secret, AppOptions { trusted: true, signing: false }).await?;
    let user = connection.user.clone().or(kept.user).unwrap_or_else(|| USER.to_owned());
    Ok(Profile { app_code: Some(code), app_secret: Some(secret), user: Some(user), ..Profile::default() })
}

fn new_agent_id() -> Result<AgentId> {
    Ok(format!("dev-{}", uuid::Uuid::new_v4().simple()).parse()?)
}

/// An address that this machine can reach if a server listens on all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

type AgentResult = std::result::Result<proctor_agent::AgentExit, proctor_agent::AgentError>;

/// The receiver is notified when the agent exits.
async fn start_agent(
    server: &Server,
    agent: &AgentId,
    dir: &Path,
    store: &Arc<dyn Store>,
    tasks: &Tasks,
) -> Result<oneshot::Receiver<AgentResult>> {
    let token = if proctor_agent::is_enrolled(dir) {
        None
    } else {
        let request = TokenRequest::new(1, TOKEN_TTL, Some(HOST.cloud))?.naming(Some(HOST))?;
        let local = LocalAdmin::new(store.clone(), &serve::system_user());
        Some(local.create_token(request).await?.0.to_string())
    };
    let options = proctor_agent::Options {
        server: reachable(server.link).to_string(),
        token,
        state_dir: dir.to_owned(),
        ip: Some(HOST.ip),
        cloud: HOST.cloud,
        supplier: HOST.supplier,
        agent_id: Some(agent.clone()),
        policy: None,
        metrics: None,
        metrics_processes: false,
        tracking: proctor_agent::Tracking::default(),
        spawn: proctor_agent::SpawnMethod::default(),
        traces: proctor_traces::Traces::default(),
        is_program: false,
    };
    let (sender, receiver) = oneshot::channel();
    let of_agent = tasks.clone();
    tasks.spawn_to_end("local agent", async move {
        let _ = sender.send(Box::pin(proctor_agent::run(options, of_agent)).await);
    });
    Ok(receiver)
}

fn agent_failed(ended: std::result::Result<AgentResult, oneshot::error::RecvError>) -> Error {
    match ended {
        Ok(Err(error)) => Error::new(error).context("the local agent failed"),
        Ok(Ok(_)) | Err(_) => Error::msg("the local agent ended"),
    }
}

/// Returns when the agent is connected and the demo runs.
async fn ready(control: &Control, agent: &AgentId, demo: &Demo) -> Result<()> {
    let connected = async {
        while !control.is_connected(agent) {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(CONNECT_MAX, connected)
        .await
        .with_context(|| format!("the local agent did not connect within {} s", CONNECT_MAX.as_secs()))?;
    // Without its demo everything else still works.
    if let Err(error) = demo.play(control, &Caller::local("proctor-dev"), HOST).await {
        tracing::warn!("{error:#}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_everywhere_is_reached_on_this_machine() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()).to_string(), "127.0.0.1:80");
        assert_eq!(reachable("[::]:80".parse().unwrap()).to_string(), "[::1]:80");
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()).to_string(), "10.0.0.1:80");
    }

    #[test]
    fn a_made_up_agent_id_is_legal() {
        assert!(new_agent_id().unwrap().as_str().starts_with("dev-"));
    }
}

//! `proctor server`, and what `proctor dev` shares with it: the data directory, the store, and the shutdown.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use proctor_runtime::{Tasks, private};
use proctor_server::backup_seal::SEAL;
use proctor_server::gateway::LinkPolicy;
use proctor_server::{CALLS_END_MAX, Options, Server};
use proctor_store::Store;
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::ServerArgs;
use crate::backup;
use crate::commands::CommandEnd;
use crate::config::Reloader;
use crate::profile;

/// Where the server's package installs the agent program.
const DOWNLOAD_DIR: &str = "/usr/share/proctor/download";
const STORE_FILE: &str = "proctor.db";
/// More than the HTTP server allows for requests in progress.
const END_MAX: Duration = Duration::from_secs(12);
/// For the rest: closing the store, writing the log.
const END_SPARE: Duration = Duration::from_secs(5);

/// How often unused memory is looked for, and how much of it may be kept for the next request.
const MEMORY_PERIOD: Duration = Duration::from_secs(5);
const MEMORY_SLACK: u64 = 32 * 1024 * 1024;
/// If less than this was returned, it was not worth it, and the next attempt waits longer, up to the limit.
const MEMORY_WORTH: u64 = 8 * 1024 * 1024;
const MEMORY_PERIOD_MAX: Duration = Duration::from_secs(300);

pub(crate) async fn run(args: ServerArgs, mut reloader: Option<Reloader>) -> Result<CommandEnd> {
    let mut stop = StopSignal::install()?;
    let hang_up = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let dir = args.data_dir.map_or_else(default_dir, Ok)?;
    let tls = args.tls.source(args.http)?;
    make_dir(&dir)?;
    let store = open_store(&dir).await?;
    let tasks = Tasks::default();
    let descriptors = proctor_host::descriptors::raise();
    let mut border = args.border.settings(descriptors)?;
    border.download_dir = Some(args.download_dir.unwrap_or_else(|| DOWNLOAD_DIR.into()));
    let connections = border.connections;
    tracing::info!(descriptors, http_connections = connections.total, of_one_peer = connections.per_peer, "limits");
    let retention = args.retention.retention(&dir);
    let tracing = args.traces.start("proctor-server", env!("CARGO_PKG_VERSION"))?;
    let options = Options {
        http: args.http,
        link: args.link,
        wait_for: None,
        border,
        tls,
        retention,
        link_policy: LinkPolicy {
            approve_hosts: args.approve_hosts,
            signed_reports: args.signed_reports,
            ..LinkPolicy::default()
        },
        traces: tracing.traces.clone(),
    };
    let server = Server::start(options, store, &tasks).await?;
    tasks.spawn_critical("memory", give_back_memory());
    tracing::info!(http = %server.http, link = %server.link, data = %dir.display(), "server started");
    proctor_runtime::systemd::notify("READY=1");
    let ended = until_over(&mut stop, &tasks, reload_on(hang_up, reloader.as_mut(), &server, &dir)).await;
    let drain_time = reloader.and_then(|reloader| reloader.drain_time).unwrap_or(args.drain_time);
    proctor_runtime::systemd::notify(&stopping(drain_time));
    if ended.is_ok() {
        drain(&server, drain_time, &mut stop).await;
    }
    end(&tasks).await;
    ended
}

/// Until shutdown is requested, or a critical task has ended: then the program must not look healthy, and exits
/// with an error.
async fn until_over(
    stop: &mut StopSignal,
    tasks: &Tasks,
    reload: impl Future<Output = Infallible>,
) -> Result<CommandEnd> {
    tokio::select! {
        () = stop.received() => Ok(CommandEnd::Success),
        failed = tasks.failed() => Err(failed.into()),
        never = reload => match never {},
    }
}

/// SIGHUP reads the configuration and the certificates again.
async fn reload_on(
    mut hang_up: Signal,
    mut reloader: Option<&mut Reloader>,
    server: &Server,
    data_dir: &Path,
) -> Infallible {
    loop {
        if hang_up.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        if let Some(reloader) = &mut reloader {
            reloader.reload_server(server, data_dir);
        }
    }
}

/// Readiness first, then calls; sessions are closed with everything else. A second signal cuts the first step
/// short.
async fn drain(server: &Server, time: Duration, stop: &mut StopSignal) {
    server.stop_being_ready();
    tracing::info!(?time, "draining: no longer ready");
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.received() => {}
    }
    let all_ended = server.end_calls().await;
    tracing::info!(all_ended, "drained");
}

/// Tells systemd about the shutdown, and how long it may take: a long drain must not end in a kill.
fn stopping(drain: Duration) -> String {
    let time = drain.saturating_add(CALLS_END_MAX + END_MAX + END_SPARE);
    format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", time.as_micros())
}

/// Returns memory to the host shortly after a large request. If little is returned, because free memory is
/// fragmented, it is tried less and less often: it blocks everybody who allocates.
async fn give_back_memory() {
    let mut wait = MEMORY_PERIOD;
    loop {
        tokio::time::sleep(wait).await;
        // Walks every heap, which may take some milliseconds.
        let freed = tokio::task::spawn_blocking(|| proctor_host::memory::give_back_beyond(MEMORY_SLACK)).await;
        wait = match freed {
            Ok(Some(bytes)) if bytes < MEMORY_WORTH => (wait * 2).min(MEMORY_PERIOD_MAX),
            Ok(_) | Err(_) => MEMORY_PERIOD,
        };
        if let Ok(Some(bytes)) = freed {
            tracing::debug!(bytes, ?wait, "freed memory returned to the host");
        }
    }
}

/// SIGTERM and SIGINT, caught from the moment this exists.
#[derive(Debug)]
pub(crate) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    pub(crate) fn install() -> Result<Self> {
        let install = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: install(SignalKind::terminate())?, interrupt: install(SignalKind::interrupt())? })
    }

    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("received SIGTERM, shutting down"),
            _ = self.interrupt.recv() => tracing::info!("received SIGINT, shutting down"),
        }
    }
}

/// Lets requests finish and sessions say goodbye. Supervised processes live on.
pub(crate) async fn end(tasks: &Tasks) {
    if !tasks.end(END_MAX).await {
        tracing::warn!("shutdown timed out");
    }
}

pub(crate) async fn open_store(dir: &Path) -> Result<Arc<dyn Store>> {
    let path = store_file(dir);
    let store = SqliteStore::open(&path).await.with_context(|| format!("cannot open {}", path.display()))?;
    if store.secret(SEAL).await?.is_some() {
        bail!("{} is a sealed backup: `proctor restore` makes a store of it", path.display());
    }
    // Once there is a store, no restore can complete any more.
    backup::remove_draft(dir);
    Ok(Arc::new(store))
}

/// The store of a server that may be running. Never creates one: a mistyped directory must not look like an empty
/// server. An older schema stays as it is unless somebody asks to `migrate`.
pub(crate) async fn open_store_beside(dir: &Path, migrate: bool) -> Result<Arc<dyn Store>> {
    let path = store_file(dir);
    if !path.try_exists().with_context(|| format!("cannot check whether {} exists", path.display()))? {
        bail!(
            "{} holds no store of a server ({STORE_FILE}): check --data-dir, or start `proctor server` on it first",
            dir.display()
        );
    }
    let opened = match migrate {
        true => SqliteStore::open_beside_migrating(&path).await,
        false => SqliteStore::open_beside(&path).await,
    };
    Ok(Arc::new(opened.with_context(|| format!("cannot open {}", path.display()))?))
}

/// Who runs this program, for the audit.
pub(crate) fn system_user() -> String {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

pub(crate) fn store_file(dir: &Path) -> PathBuf {
    dir.join(STORE_FILE)
}

/// Default data directory of a server.
pub(crate) fn default_dir() -> Result<PathBuf> {
    if nix::unistd::geteuid().is_root() {
        return Ok("/var/lib/proctor".into());
    }
    below_data_home("proctor/server")
}

pub(crate) fn below_data_home(path: &str) -> Result<PathBuf> {
    match profile::base_dir("XDG_DATA_HOME", ".local/share") {
        Some(dir) => Ok(dir.join(path)),
        None => bail!("there is no home directory: give --data-dir"),
    }
}

/// Private: it holds the authority's key.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    Ok(private::dir(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn systemd_waits_for_the_whole_end() {
        assert_eq!(stopping(Duration::from_secs(60)), "STOPPING=1\nEXTEND_TIMEOUT_USEC=88000000");
        assert!(stopping(Duration::MAX).starts_with("STOPPING=1\n"), "a drain without an end is no mistake");
    }

    #[tokio::test]
    async fn a_server_ends_with_a_failure_when_a_critical_task_has_ended() {
        let [panics, returns] = [Tasks::default(), Tasks::default()];
        panics.spawn_critical("sweeper", async { panic!("on purpose") });
        returns.spawn_critical("store writer", async {});
        let mut stop = StopSignal::install().unwrap();

        for (tasks, expected) in
            [(panics, "critical task 'sweeper' panicked"), (returns, "critical task 'store writer' ended")]
        {
            let error = until_over(&mut stop, &tasks, std::future::pending()).await.unwrap_err();

            assert_eq!(error.to_string(), expected);
            assert_eq!(report::code(&error, true), 1);
        }
    }
}

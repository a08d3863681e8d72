//! The control plane: `api` (the HTTP dialects), `control` (registrations, tasks, permissions, rollouts), `gateway`
//! (sessions of agents) and `webhooks`.
//!
//! A service in our usual shape: [`Options`] → [`Server::start`] → a cheap [`Server`] handle. It ends with the
//! [`Tasks`] it was started on.
//! Absent: SQL (see `proctor_store`), flags and signals (see the CLI).
//!
//! Start at `api::routes`, the table of all compatible calls, and `control::submit`.

pub mod admin;
pub mod api;
pub mod backup_seal;
mod builds;
pub mod control;
mod event_json;
pub mod gateway;
pub mod keys;
mod log_limit;
mod metrics;
mod pace;
mod passwords;
mod shares;
pub mod user_token;
pub mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{AgentId, Message};
pub use proctor_pki::OldKey;
use proctor_runtime::Tasks;
use proctor_store::Store;
use proctor_traces::Traces;

/// More than the HTTP server gives to the requests that are under way.
/// How long calls have to end once no more are accepted.
pub const CALLS_END_MAX: Duration = Duration::from_secs(11);

/// Where to listen, and what holds at the border.
#[derive(Clone, Debug)]
pub struct Options {
    pub http: SocketAddr,
    pub link: SocketAddr,
    /// `/healthz` and `/readyz` answer 503 until this agent is connected.
    pub wait_for: Option<AgentId>,
    pub border: api::Settings,
    /// None: plain HTTP.
    pub tls: Option<api::TlsSource>,
    pub retention: control::Retention,
    pub link_policy: gateway::LinkPolicy,
    /// Where the traces of tasks go.
    pub traces: Traces,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{0}")]
    Refused(Message),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot serve HTTPS")]
    Tls(#[source] Box<api::TlsProblem>),
    #[error("cannot prepare the server's certificates")]
    Pki(#[from] proctor_pki::PkiError),
    #[error("cannot read or write the store")]
    Store(#[from] proctor_store::StoreError),
    #[error("cannot start the control plane")]
    Start(#[source] control::ControlError),
    #[error(transparent)]
    Control(#[from] control::ControlError),
}

impl From<api::TlsProblem> for ServerError {
    fn from(problem: api::TlsProblem) -> Self {
        Self::Tls(Box::new(problem))
    }
}

/// A running server.
#[derive(Clone, Debug)]
pub struct Server {
    pub control: control::Control,
    pub http: SocketAddr,
    pub link: SocketAddr,
    /// None: plain HTTP.
    pub https: Option<api::Https>,
    api: api::ApiState,
    /// Ends before the rest.
    calls: Tasks,
}

impl Server {
    /// Binds both ports and serves until `tasks` end.
    pub async fn start(options: Options, store: Arc<dyn Store>, tasks: &Tasks) -> Result<Self, ServerError> {
        let of_control = control::StartOptions {
            retention: options.retention,
            traces: options.traces,
            ..control::StartOptions::default()
        };
        let control =
            control::Control::start_with(store.clone(), tasks, of_control).await.map_err(ServerError::Start)?;
        if let Some(dir) = &options.border.download_dir {
            control.hold_builds_in(dir.clone()).await;
        }
        let written = store.clone();
        tasks.spawn_critical("store writer", async move { written.closed().await });
        webhooks::start(&control, options.border.webhooks.clone(), tasks);
        let link = gateway::serve(options.link, control.clone(), options.link_policy, tasks).await?;
        let https = match options.tls {
            Some(source) => Some(api::Https::new(source, &store).await?),
            None => None,
        };
        let state = api::ApiState::new(control.clone(), options.wait_for, options.border).with_https(https.clone());
        let calls = Tasks::default();
        let http = api::serve(options.http, state.clone(), https.clone(), &calls).await?;
        fail_with(tasks, "http", &calls);
        let (ending, of_calls, audited) = (tasks.shutdown(), calls.clone(), control.clone());
        tasks.spawn_to_end("http end", async move {
            ending.cancelled().await;
            of_calls.end(CALLS_END_MAX).await;
            audited.end_audit().await;
        });
        Ok(Self { control, http, link, https, api: state, calls })
    }

    /// Says at `/readyz` that no more calls should come. Those that do are answered.
    pub fn stop_being_ready(&self) {
        self.control.stop_being_ready();
    }

    /// Accepts no more connections, ends long polls and streams, and lets the other calls end. False where some were
    /// cut off.
    pub async fn end_calls(&self) -> bool {
        self.control.end_waits();
        self.calls.end(CALLS_END_MAX).await
    }

    /// Calls of one app in a second, from now on.
    pub fn set_rate_limit(&self, limit: Option<api::RateLimit>) {
        self.api.set_rate_limit(limit);
    }

    /// Networks that may read `/metrics` without credentials, from now on.
    pub fn set_metrics_from(&self, networks: api::Networks) {
        self.api.set_metrics_from(networks);
    }

    /// How long things are kept, from now on.
    pub fn set_retention(&self, retention: control::Retention) {
        self.control.set_retention(retention);
    }

    /// The path of a console page that signs this user in, once; None for an unknown user.
    pub async fn sign_in_path(&self, user: &str) -> proctor_store::Result<Option<String>> {
        let credential = self.control.user_credential(user).await?;
        Ok(credential.map(|credential| self.api.sign_in_link(user, credential).path))
    }
}

/// The end of a critical task of `part` is that of a critical task of the whole.
fn fail_with(tasks: &Tasks, name: &'static str, part: &Tasks) {
    let part = part.clone();
    tasks.spawn_critical(name, async move {
        let _ = part.failed().await;
    });
}

#[cfg(test)]
mod tests {
    use proctor_store::sqlite::SqliteStore;

    use super::*;

    fn options() -> Options {
        let loopback = "127.0.0.1:0".parse().unwrap();
        Options {
            http: loopback,
            link: loopback,
            wait_for: None,
            border: api::Settings::default(),
            tls: None,
            retention: control::Retention::default(),
            link_policy: gateway::LinkPolicy::default(),
            traces: Traces::default(),
        }
    }

    /// What `proctor server` must not go on without; see `Tasks::failed` for what their end means.
    #[tokio::test]
    async fn the_tasks_that_the_server_needs_are_critical() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("proctor.db")).await.unwrap());
        let tasks = Tasks::default();

        let server = Server::start(options(), store, &tasks).await.unwrap();

        let critical = [tasks.critical(), server.calls.critical()].concat();
        for task in [
            "store writer",
            "sweeper",
            "outcome recorder",
            "assignment reader",
            "report writer",
            "session waker",
            "retention",
            "rollouts",
            "upgrades",
            "webhook forwarder",
            "link listener",
            "link admission",
            "signing key",
            "ticket keys",
            "http",
            "http listener",
            "http connections",
        ] {
            assert!(critical.contains(&task), "{task} is not among {critical:?}");
        }
        assert!(!critical.contains(&"overview trend"), "the server is of use without it");
        assert_eq!(tasks.failure(), None);
        assert!(tasks.end(Duration::from_secs(60)).await);
    }

    #[tokio::test]
    async fn refusals_that_were_only_counted_are_written_when_the_server_ends() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("proctor.db")).await.unwrap());
        let tasks = Tasks::default();
        let server = Server::start(options(), store.clone(), &tasks).await.unwrap();
        let permissions = Arc::new(proctor_model::Permissions::default());
        let stranger = control::Caller { permissions, ..control::Caller::local("stranger") };
        for _ in 0..250 {
            let deed = control::AuditAction::new("create_user", []);
            server
                .control
                .audit_refusal(&stranger, &deed, stranger.require(proctor_model::Class::Admin))
                .await
                .unwrap_err();
        }

        assert!(tasks.end(Duration::from_secs(60)).await);

        let query = proctor_store::AuditQuery { action: Some("refusals".to_owned()), limit: 10, ..Default::default() };
        let counted = store.audit(&query).await.unwrap();
        assert_eq!(counted.iter().map(|entry| entry.draft.target_count).collect::<Vec<_>>(), [50]);
    }

    /// A listener of the HTTP side has tasks of its own, so that it can end before the rest.
    #[tokio::test]
    async fn the_end_of_a_critical_task_of_the_calls_is_that_of_the_server() {
        let (tasks, calls) = (Tasks::default(), Tasks::default());
        calls.spawn_critical("http listener", async { panic!("on purpose") });

        fail_with(&tasks, "http", &calls);

        assert_eq!(tasks.failed().await.to_string(), "critical task 'http' ended");
    }
}

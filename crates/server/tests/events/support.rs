//! A control plane with two hosts, on a store that outlives it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::{AgentId, BootId, Event, EventKind, HostFacts};
use proctor_runtime::Tasks;
use proctor_server::admin::{self, AppCode, AppOptions};
use proctor_server::api::{self, ApiState, Settings};
use proctor_server::control::{Control, Greeting, Session, StartOptions};
use proctor_server::webhooks;
use proctor_store::conformance::{Joining, opening_of};
use proctor_store::sqlite::SqliteStore;
use proctor_store::{EventQuery, RegisterMode, Registration, SessionOpening, Store, StoredEvent};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) const AGENT: &str = "agent-1";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) control: Control,
    pub(crate) tasks: Tasks,
    pub(crate) secret: String,
    _directory: TempDir,
}

impl World {
    /// With the trusted app `boss`, and hosts 10.0.0.1 and 10.0.0.2 enrolled with their processes but offline.
    pub(crate) async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&directory.path().join("proctor.db")).await.unwrap());
        for number in [1, 2] {
            enrol(&*store, number).await;
        }
        let (code, trusted): (AppCode, _) = ("boss".parse().unwrap(), AppOptions { trusted: true, signing: false });
        let secret = admin::create_app(&store, &code, trusted, Vec::new()).await.unwrap().unwrap();
        let (control, tasks) = start(&store, None).await;
        Self { store, control, tasks, secret, _directory: directory }
    }

    /// The server ends, and another one starts on the same store.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(None).await;
    }

    /// With another time for agents to come back.
    pub(crate) async fn restart_with(&mut self, return_grace: Option<Duration>) {
        assert!(self.tasks.end(PATIENCE).await);
        (self.control, self.tasks) = start(&self.store, return_grace).await;
    }

    pub(crate) async fn session(&self, agent: &str) -> Arc<Session> {
        self.session_with(agent, ()).await
    }

    /// With something that is kept until the store has answered.
    pub(crate) async fn session_with(&self, agent: &str, permit: impl Send + 'static) -> Arc<Session> {
        let facts = HostFacts { agent_version: "1.2.3".into(), ..HostFacts::default() };
        let opening = SessionOpening { facts, ..opening_of(&id(agent)) };
        let greeting = Greeting::new(opening, BootId::from("boot"));
        self.control.open_session_with(greeting, permit).await.unwrap().unwrap()
    }

    pub(crate) async fn all(&self) -> Vec<StoredEvent> {
        let query = EventQuery { after: Some(0), limit: 1000, ..EventQuery::default() };
        self.control.events(&query).await.unwrap().events
    }

    /// The kinds of events about presence, with the agent of each.
    pub(crate) async fn presence(&self) -> Vec<(EventKind, String)> {
        let all = self.all().await.into_iter();
        all.filter(|stored| stored.event.sequence == 0)
            .map(|stored| (stored.event.kind, stored.agent.to_string()))
            .collect()
    }

    pub(crate) async fn until_presence(&self, expected: &[(EventKind, String)]) {
        let told = async {
            while self.presence().await != expected {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect("the events come");
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        self.call_as("boss", &self.secret, method, path, body).await
    }

    pub(crate) async fn call_as(
        &self,
        app: &str,
        secret: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let who = json!({ "bk_app_code": app, "bk_app_secret": secret, "bk_username": "admin" });
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("X-Bkapi-Authorization", who.to_string())
            .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
            .unwrap();
        let settings = Settings { webhooks: loopback(), ..Settings::default() };
        let router = api::router(ApiState::new(self.control.clone(), None, settings));
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| panic!("not JSON: {body:?}")))
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.call(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.call(Method::POST, path, body).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
    }
}

/// Receivers of tests are on this machine.
fn loopback() -> webhooks::AddressFilter {
    webhooks::AddressFilter::new("127.0.0.0/8".parse().unwrap())
}

async fn start(store: &Arc<dyn Store>, return_grace: Option<Duration>) -> (Control, Tasks) {
    let (tasks, options) = (Tasks::default(), StartOptions { return_grace, ..StartOptions::default() });
    let control = Control::start_with(store.clone(), &tasks, options).await.unwrap();
    webhooks::start(&control, loopback(), &tasks);
    (control, tasks)
}

async fn enrol(store: &dyn Store, number: u8) {
    Joining::new(&format!("10.0.0.{number}"), &format!("agent-{number}")).enrol(store).await;
    let registration = |(process, report_id): (&str, i64)| {
        let mut spec = proctor_store::conformance::spec("nginx");
        Arc::make_mut(&mut spec).report_id = Some(report_id);
        Registration { agent: id(&format!("agent-{number}")), key: process.parse().unwrap(), spec }
    };
    let processes = [("web/a", 9), ("web/b", 8), ("db/a", 9), ("nodeman/bkmonitorbeat", 42)].map(registration);
    store.register(&processes, RegisterMode::Create, 1).await.unwrap();
}

pub(crate) fn id(agent: &str) -> AgentId {
    agent.parse().unwrap()
}

pub(crate) fn event(sequence: u64, kind: EventKind, process: &str) -> Event {
    Event {
        sequence,
        at: 1_618_382_611_690,
        process: Some(process.parse().unwrap()),
        proc_name: "nginx".into(),
        report_id: None,
        kind,
        content: proctor_model::Message::foreign(format!("event {sequence}")),
        details: [("pid".to_owned(), "7".to_owned())].into(),
    }
}

/// Waits until `check` finds what it looks for.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let found = async {
        loop {
            if let Some(value) = check().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

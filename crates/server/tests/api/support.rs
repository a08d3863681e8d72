//! A server without sockets: router, control plane and a SQLite file of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use proctor_model::{AgentId, BootId, Bounds};
use proctor_pki::hash_secret;
use proctor_runtime::Tasks;
use proctor_server::api::{self, ApiState, Settings};
use proctor_server::control::{Control, Greeting, Session, StartOptions};
use proctor_store::conformance::{Joining, opening_of};
use proctor_store::sqlite::SqliteStore;
use proctor_store::{App, Binding, RelayEnrolment, RelayToken, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;
use uuid::Uuid;

pub(crate) const APP: &str = "sample_app";
pub(crate) const SECRET: &str = "sample-secret";
pub(crate) const ESB: &str = "/api/c/compapi/v2/gse";
pub(crate) const GATEWAY: &str = "/api/bk-gse/prod/api/v2/proc";
pub(crate) const JOB: &str = "/api/c/compapi/v2/jobv3";

pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) control: Control,
    tasks: Tasks,
    directory: TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn code(&self) -> i64 {
        self.json["code"].as_i64().unwrap()
    }

    pub(crate) fn message(&self) -> &str {
        self.json["message"].as_str().unwrap()
    }

    /// `data` of a success.
    #[track_caller]
    pub(crate) fn data(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK);
        assert_eq!(self.json["result"], true, "{}", self.json);
        assert_eq!(self.code(), 0);
        &self.json["data"]
    }
}

impl World {
    /// With a trusted app, an untrusted one, and host 0:10.0.0.1 enrolled but offline.
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self::made(u32::MAX, settings, StartOptions::default()).await
    }

    /// With a store of so many pages.
    pub(crate) async fn bounded(pages_max: u32) -> Self {
        Self::made(pages_max, Settings::default(), StartOptions::default()).await
    }

    pub(crate) async fn started(options: StartOptions) -> Self {
        Self::made(u32::MAX, Settings::default(), options).await
    }

    async fn made(pages_max: u32, settings: Settings, options: StartOptions) -> Self {
        let directory = TempDir::new().unwrap();
        let store = SqliteStore::open_bounded(&directory.path().join("proctor.db"), pages_max).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let tasks = Tasks::default();
        let control = Control::start_with(Arc::clone(&store), &tasks, options).await.unwrap();
        let router = api::router(ApiState::new(control.clone(), None, settings));
        let world = Self { router, store, control, tasks, directory };
        world.put_app(APP, true).await;
        world.put_app("stranger", false).await;
        world.enrol("0:10.0.0.1", "020000000052540a9b2c1641").await;
        world
    }

    /// A program that agents could become.
    pub(crate) async fn hold_build(&self, version: &str) {
        let dir = self.directory.path().join("builds");
        std::fs::create_dir_all(&dir).unwrap();
        let head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0";
        let content = [&head[..], proctor_model::BUILD_MARK.as_bytes(), version.as_bytes(), b"\0"].concat();
        std::fs::write(dir.join(format!("agent-{version}")), content).unwrap();
        self.control.hold_builds_in(dir).await;
    }

    /// Gives a role to an app or a user.
    pub(crate) async fn bind(&self, subject: &str, role: &str, scope: &str) {
        let (subject, role, scope) = (subject.parse().unwrap(), role.parse().unwrap(), scope.parse().unwrap());
        let binding = Binding { id: Uuid::now_v7(), role, subject, scope, bounds: Bounds::default(), created_at: 0 };
        self.store.put_binding(binding).await.unwrap().unwrap();
    }

    async fn put_app(&self, code: &str, trusted: bool) {
        let store: Arc<dyn Store> = self.store.clone();
        let options = proctor_server::admin::AppOptions { trusted, signing: false };
        proctor_server::admin::put_app(&store, &code.parse().unwrap(), SECRET, options).await.unwrap();
    }

    /// An app that may name any user, and do nothing else until it is bound.
    pub(crate) async fn app(&self, code: &str) {
        self.put_app(code, false).await;
        let app = self.store.app(code).await.unwrap().unwrap();
        self.store.put_app(App { trusted: true, ..app }).await.unwrap();
    }

    pub(crate) async fn enrol(&self, host: &str, agent: &str) {
        Joining::new(host, agent).enrol(&*self.store).await;
    }

    /// A relay of cloud area 0; the same one where it has enrolled before.
    pub(crate) async fn enrol_relay(&self, relay: &str) {
        let (id, secret_hash) = (format!("token-{}", Uuid::now_v7()), hash_secret("token"));
        let token =
            RelayToken { id: id.clone(), secret_hash: secret_hash.clone(), uses: 1, expires_at: i64::MAX, cloud: 0 };
        self.store.put_relay_token(token).await.unwrap();
        let enrolment = RelayEnrolment {
            token_id: id,
            token_secret_hash: secret_hash,
            cloud: 0,
            relay: relay.parse().unwrap(),
            key_fingerprint: format!("key-{relay}"),
            remote: None,
        };
        // One that was revoked is still known.
        let _ = self.store.enrol_relay(enrolment, 1).await.unwrap();
    }

    /// The session of an agent that is enrolled; the test plays its part.
    pub(crate) async fn connect(&self, agent: &str) -> Arc<Session> {
        self.control.open_session(greeting(&agent.parse().unwrap())).await.unwrap().unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let is_empty = head.status == StatusCode::NO_CONTENT && body.is_empty();
        let json = if is_empty { Value::Null } else { serde_json::from_slice(&body).expect("an answer is JSON") };
        Answer { status: head.status, headers: head.headers, json }
    }

    /// With these credentials in the header; an empty object stands for no body.
    pub(crate) async fn call(&self, credentials: &Value, method: &Method, path: &str, body: &Value) -> Answer {
        let body = if *body == json!({}) { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("X-Bkapi-Authorization", credentials.to_string())
            .body(Body::from(body))
            .unwrap();
        self.send(request).await
    }

    /// The head of an answer that is not one JSON text, such as a stream.
    pub(crate) async fn open(&self, credentials: &Value, path: &str) -> axum::response::Response {
        let request = Request::get(path).header("X-Bkapi-Authorization", credentials.to_string());
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// With the credentials of the trusted app in the body.
    pub(crate) async fn post(&self, path: &str, mut body: Value) -> Answer {
        body["bk_app_code"] = json!(APP);
        body["bk_app_secret"] = json!(SECRET);
        body["bk_username"] = json!("admin");
        self.post_as_is(path, &body).await
    }

    pub(crate) async fn post_as_is(&self, path: &str, body: &Value) -> Answer {
        self.send(post_request(path, body.to_string())).await
    }

    /// As if it came from this address.
    pub(crate) async fn send_from(&self, address: &str, mut request: Request<Body>) -> Answer {
        let peer = SocketAddr::new(address.parse().unwrap(), 4711);
        request.extensions_mut().insert(ConnectInfo(peer));
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Polls until no row is at 115.
    pub(crate) async fn finished(&self, path: &str, task: &Value) -> Value {
        let patience = Duration::from_secs(60);
        let poll = async {
            loop {
                let answer = self.post(path, json!({"task_id": task})).await;
                let rows = answer.data().as_object().unwrap().clone();
                if rows.values().all(|row| row["error_code"] != 115) {
                    return Value::Object(rows);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(patience, poll).await.expect("every row ends")
    }

    pub(crate) async fn end(self) {
        assert!(self.tasks.end(Duration::from_secs(60)).await);
    }

    /// Ends it and leaves its file, with everything in it.
    pub(crate) async fn ended(self) -> TempDir {
        assert!(self.tasks.end(Duration::from_secs(60)).await);
        let Self { router, store, control, tasks, directory } = self;
        drop((router, store, control, tasks));
        let log = std::fs::metadata(directory.path().join("proctor.db-wal"));
        assert!(log.is_ok_and(|log| log.len() == 0), "the store is closed");
        directory
    }
}

pub(crate) fn post_request(path: &str, body: String) -> Request<Body> {
    Request::builder().method(Method::POST).uri(path).body(Body::from(body)).unwrap()
}

pub(crate) fn spec() -> Value {
    json!({
        "identity": {"proc_name": "nginxd", "setup_path": "/data/nginx", "pid_path": "/data/nginx/n.pid", "user": "root"},
        "control": {"start_cmd": "./start.sh", "stop_cmd": "./stop.sh"},
        "resource": {"cpu": 10, "mem": 10},
        "monitor_policy": {"auto_type": 1}
    })
}

/// A process of the first generation on one host.
pub(crate) fn on_host(name: &str, ip: &str) -> Value {
    json!({
        "meta": {"namespace": "web", "name": name, "labels": {"tier": 1}},
        "hosts": [{"ip": ip, "bk_cloud_id": 0, "bk_supplier_id": 7}]
    })
}

pub(crate) fn registered(name: &str, ip: &str) -> Value {
    let mut body = on_host(name, ip);
    body["spec"] = spec();
    body
}

/// How the agent that `enrol` knows opens a session.
pub(crate) fn greeting(agent: &AgentId) -> Greeting {
    Greeting::new(opening_of(agent), BootId::from("boot"))
}

//! A control plane with one host, called over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::{AgentId, BootId};
use proctor_runtime::Tasks;
use proctor_server::admin::{self, AppCode, AppOptions};
use proctor_server::api::{self, ApiState, Settings};
use proctor_server::control::{Control, Greeting};
use proctor_store::Store;
use proctor_store::conformance::{Joining, opening_of};
use proctor_store::sqlite::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) const HOST: &str = "0:10.0.0.1";
pub(crate) const AGENT: &str = "agent-1";

pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) control: Control,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) secret: String,
    pub(crate) tasks: Tasks,
    dir: TempDir,
}

impl World {
    /// With the trusted app `boss`, and host 0:10.0.0.1 enrolled but offline.
    pub(crate) async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("proctor.db")).await.unwrap());
        let tasks = Tasks::default();
        let control = Control::start(store.clone(), &tasks).await.unwrap();
        let router = api::router(ApiState::new(control.clone(), None, Settings::default()));
        let (code, trusted): (AppCode, _) = ("boss".parse().unwrap(), AppOptions { trusted: true, signing: false });
        let secret = admin::create_app(&store, &code, trusted, Vec::new()).await.unwrap().unwrap();
        let world = Self { router, control, store, secret, tasks, dir };
        world.enrol(HOST, AGENT).await;
        world
    }

    pub(crate) async fn enrol(&self, host: &str, agent: &str) {
        Joining::new(host, agent).enrol(&*self.store).await;
    }

    /// The server holds a build of that version for x86_64.
    pub(crate) async fn hold_build(&self, version: &str) {
        let dir = self.dir.path().join("builds");
        std::fs::create_dir_all(&dir).unwrap();
        let head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0";
        let content = [&head[..], proctor_model::BUILD_MARK.as_bytes(), version.as_bytes(), b"\0"].concat();
        std::fs::write(dir.join(format!("agent-{version}")), content).unwrap();
        self.control.hold_builds_in(dir).await;
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
        let who = credentials(app, secret);
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("X-Bkapi-Authorization", who)
            .body(body)
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
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

    pub(crate) async fn put(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.call(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> (StatusCode, Value) {
        self.call(Method::DELETE, path, Value::Null).await
    }

    /// The answer to something that must work.
    pub(crate) async fn got(&self, path: &str) -> Value {
        let (status, answer) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        answer
    }

    pub(crate) async fn register(&self, name: &str) {
        let (status, answer) = self.post("/processes", registration(name)).await;
        assert_eq!((status, &answer["rows"][0]["code"]), (StatusCode::OK, &json!(0)), "{answer}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
    }
}

pub(crate) fn credentials(app: &str, secret: &str) -> String {
    json!({ "bk_app_code": app, "bk_app_secret": secret, "bk_username": "admin" }).to_string()
}

pub(crate) fn registration(name: &str) -> Value {
    json!({
        "meta": { "namespace": "web", "name": name, "labels": { "team": "a" } },
        "hosts": [{ "ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 0 }],
        "spec": {
            "identity": { "index_key": "", "proc_name": "nginx", "setup_path": "/opt/nginx",
                          "pid_path": "/run/nginx.pid", "config_path": "/etc/nginx.conf", "log_path": "/var/log/nginx",
                          "user": "root" },
            "control": { "start_cmd": "./start.sh", "stop_cmd": "./stop.sh", "health_cmd": "./health.sh" },
            "resource": { "cpu": 12.5, "mem": 30, "fd": 1000, "disk": 7, "net": 8 },
            "monitor_policy": { "auto_type": 1, "start_check_secs": 2 },
            "warn_report_policy": { "report_id": 9 },
            "configmap": [{ "path": "/etc/nginx.conf", "md5": "abc" }],
        },
    })
}

pub(crate) fn error(answer: &Value) -> (&str, &str) {
    (answer["error"]["code"].as_str().unwrap(), answer["error"]["field"].as_str().unwrap_or_default())
}

/// One field of every object in a list.
pub(crate) fn column<'a>(list: &'a Value, field: &str) -> Vec<&'a Value> {
    list.as_array().unwrap().iter().map(|row| &row[field]).collect()
}

/// How the agent that `enrol` knows opens a session.
pub(crate) fn greeting(agent: &AgentId) -> Greeting {
    Greeting::new(opening_of(agent), BootId::from("boot"))
}

//! Permissions end when they are revoked: for streams, waiting calls, users behind apps, and by name.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt;
use proctor_model::EventKind;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::stream::{Stream, event, session};
use crate::support::{HOST, World, column, credentials, error};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct User {
    token: String,
    token_id: String,
    binding: String,
}

impl User {
    /// With a token, and with a role on everything.
    async fn new(world: &World, name: &str, role: &str) -> Self {
        Self::within(world, name, role, "everything").await
    }

    /// With a token, and with a role in a scope.
    pub(crate) async fn within(world: &World, name: &str, role: &str, scope: &str) -> Self {
        world.post("/users", json!({ "name": name })).await;
        let (_, token) = world.post(&format!("/users/{name}/tokens"), json!({})).await;
        let binding = json!({ "role": role, "subject": format!("user:{name}"), "scope": scope });
        let (_, binding) = world.post("/bindings", binding).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self { token: text(&token["token"]), token_id: text(&token["id"]), binding: text(&binding["id"]) }
    }

    fn header(&self) -> (&'static str, String) {
        ("Authorization", format!("Bearer {}", self.token))
    }

    pub(crate) async fn call(&self, world: &World, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let (name, value) = self.header();
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder().method(method).uri(format!("/api/v1{path}")).header(name, value);
        world.send(request.body(body).unwrap()).await
    }
}

/// What an administrator takes away.
#[derive(Clone, Copy, Debug)]
enum Taken {
    Binding,
    Token,
    User,
    Enabled,
}

impl Taken {
    const ALL: [Self; 4] = [Self::Binding, Self::Token, Self::User, Self::Enabled];

    async fn take(self, world: &World, user: &User) {
        let (status, answer) = match self {
            Self::Binding => world.delete(&format!("/bindings/{}", user.binding)).await,
            Self::Token => world.delete(&format!("/users/ana/tokens/{}", user.token_id)).await,
            Self::User => world.delete("/users/ana").await,
            Self::Enabled => world.put("/users/ana", json!({ "disabled": true })).await,
        };
        assert_eq!(status, StatusCode::OK, "{self:?}: {answer}");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_rights_of_its_caller_and_gives_nothing_that_came_later() {
    for taken in Taken::ALL {
        let world = World::new().await;
        let session = session(&world).await;
        let ana = User::new(&world, "ana", "viewer").await;
        let mut stream = Stream::open_as(&world, ana.header(), "?after=0&type=exited", None).await;
        world.control.events_arrived(&session, &[event(1, EventKind::Exited)]).await.unwrap();
        let before = stream.next().await.unwrap();

        taken.take(&world, &ana).await;
        world.control.events_arrived(&session, &[event(2, EventKind::Exited)]).await.unwrap();

        assert_eq!(before.2["sequence"], 1, "{taken:?}");
        assert_eq!(stream.next().await, None, "{taken:?}");
    }
}

#[tokio::test]
async fn a_stream_on_which_nothing_happens_ends_too_also_one_of_an_app() {
    let world = World::new().await;
    let (_, app) = world.post("/apps", json!({ "code": "watcher", "trusted": true })).await;
    let who = ("X-Bkapi-Authorization", credentials("watcher", app["secret"].as_str().unwrap()));
    let mut stream = Stream::open_as(&world, who, "", None).await;

    let (end, (status, _)) = tokio::join!(stream.next(), world.post("/apps/watcher/secret", Value::Null));

    assert_eq!((status, end), (StatusCode::OK, None));
}

#[tokio::test]
async fn a_change_of_somebody_elses_rights_ends_no_stream() {
    let world = World::new().await;
    let session = session(&world).await;
    let ana = User::new(&world, "ana", "viewer").await;
    let bob = User::new(&world, "bob", "viewer").await;
    let mut stream = Stream::open_as(&world, bob.header(), "?after=0&type=exited", None).await;

    Taken::User.take(&world, &ana).await;
    world.control.events_arrived(&session, &[event(1, EventKind::Exited)]).await.unwrap();

    assert_eq!(stream.next().await.unwrap().2["sequence"], 1);
}

#[tokio::test]
async fn events_that_were_read_ahead_for_a_slow_client_are_not_given_after_the_right_is_gone() {
    let world = World::new().await;
    let session = session(&world).await;
    let ana = User::new(&world, "ana", "viewer").await;
    let events: Vec<_> = (1..=20).map(|sequence| event(sequence, EventKind::Exited)).collect();
    world.control.events_arrived(&session, &events).await.unwrap();
    let mut stream = Stream::open_as(&world, ana.header(), "?after=0&type=exited", None).await;
    let first = stream.next().await.unwrap();

    Taken::Binding.take(&world, &ana).await;

    assert_eq!((first.2["sequence"].clone(), stream.next().await), (json!(1), None));
}

#[tokio::test]
async fn audit_entries_that_were_read_ahead_are_not_given_after_the_right_is_gone() {
    for taken in Taken::ALL {
        let world = World::new().await;
        let ana = User::new(&world, "ana", "admin").await;
        let (name, value) = ana.header();
        let request = Request::get("/api/v1/audit/export").header(name, value).body(Body::empty()).unwrap();
        let mut lines = world.router.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
        let first = lines.next().await.expect("making ana is on record");

        taken.take(&world, &ana).await;
        let next = lines.next().await;

        assert!(first.is_ok() && next.is_some_and(|line| line.is_err()), "{taken:?}");
    }
}

#[tokio::test]
async fn a_call_that_waits_for_events_ends_with_the_rights_of_its_caller() {
    for (taken, expected) in [
        (Taken::Binding, (StatusCode::FORBIDDEN, "permission_denied")),
        (Taken::Token, (StatusCode::UNAUTHORIZED, "unauthenticated")),
        (Taken::Enabled, (StatusCode::UNAUTHORIZED, "unauthenticated")),
    ] {
        let world = World::new().await;
        let ana = User::new(&world, "ana", "viewer").await;
        let newest = world.got("/events").await["next"].clone();
        let path = format!("/events?after={newest}&wait=30");
        let waiting = tokio::time::timeout(PATIENCE, ana.call(&world, Method::GET, &path, Value::Null));

        let (ended, ()) = tokio::join!(waiting, taken.take(&world, &ana));

        let (status, answer) = ended.expect("an answer long before the wait is over");
        assert_eq!((status, error(&answer).0), expected, "{taken:?}: {answer}");
    }
}

#[tokio::test]
async fn nobody_acts_for_a_disabled_user_whatever_the_app() {
    let world = World::new().await;
    let as_ana = || async {
        let who = json!({ "bk_app_code": "boss", "bk_app_secret": world.secret, "bk_username": "ana" });
        let request = Request::get("/api/v1/whoami").header("X-Bkapi-Authorization", who.to_string());
        world.send(request.body(Body::empty()).unwrap()).await
    };
    let unknown = as_ana().await;
    world.post("/users", json!({ "name": "ana" })).await;
    let enabled = as_ana().await;

    world.put("/users/ana", json!({ "disabled": true })).await;
    let (status, answer) = as_ana().await;

    assert_eq!((unknown.0, &unknown.1["user"]), (StatusCode::OK, &json!("ana")));
    assert_eq!((enabled.0, &enabled.1["user"]), (StatusCode::OK, &json!("ana")));
    assert_eq!((status, error(&answer).0), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{answer}");
    assert_eq!(answer["error"]["message"], "user ana is disabled");
    world.put("/users/ana", json!({ "disabled": false })).await;
    assert_eq!(as_ana().await.0, StatusCode::OK);

    world.put("/users/ana", json!({ "disabled": true })).await;
    assert_eq!(world.delete("/users/ana").await.0, StatusCode::OK);
    let (status, answer) = as_ana().await;
    assert_eq!((status, error(&answer).0), (StatusCode::UNAUTHORIZED, "unauthenticated"), "deleted: {answer}");
    world.post("/users", json!({ "name": "ana" })).await;
    assert_eq!(as_ana().await.0, StatusCode::OK, "somebody has the name again");
}

fn start(name: &str) -> Value {
    json!({ "process": format!("web/{name}"), "operation": "start", "hosts": [HOST] })
}

async fn until_over(world: &World, task: &str) {
    let over = async {
        while world.got(&format!("/tasks/{task}")).await["pending"] != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("a host that is offline is not waited for");
}

#[tokio::test]
async fn an_app_and_a_user_of_one_name_do_not_own_each_others_tasks() {
    let world = World::new().await;
    world.register("a").await;
    let (_, app) = world
        .post("/apps", json!({ "code": "alice", "roles": [{ "role": "operator", "scope": "namespace:web" }] }))
        .await;
    let secret = app["secret"].as_str().unwrap();
    let as_app = async |method: Method, path: &str, body: Value| {
        let who = json!({ "bk_app_code": "alice", "bk_app_secret": secret, "bk_username": "alice" }).to_string();
        let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        world.send(request.header("X-Bkapi-Authorization", who).body(body).unwrap()).await
    };
    let alice = User::new(&world, "alice", "operator").await;
    world.delete(&format!("/bindings/{}", alice.binding)).await;
    world.post("/bindings", json!({ "role": "operator", "subject": "user:alice", "scope": "namespace:web" })).await;

    let (_, of_app) = as_app(Method::POST, "/operations", start("a")).await;
    let (_, of_user) = alice.call(&world, Method::POST, "/operations", start("a")).await;
    let path = |task: &Value| format!("/tasks/{}", task["task_id"].as_str().unwrap());

    for (task, app_may, user_may) in
        [(&of_app, StatusCode::OK, StatusCode::FORBIDDEN), (&of_user, StatusCode::FORBIDDEN, StatusCode::OK)]
    {
        for below in ["", "/targets"] {
            let path = path(task) + below;
            assert_eq!(as_app(Method::GET, &path, Value::Null).await.0, app_may, "{path}");
            assert_eq!(alice.call(&world, Method::GET, &path, Value::Null).await.0, user_may, "{path}");
        }
    }
    assert_eq!(as_app(Method::POST, &(path(&of_user) + "/cancel"), Value::Null).await.0, StatusCode::FORBIDDEN);
    let (_, listed) = as_app(Method::GET, "/tasks", Value::Null).await;
    assert_eq!(column(&listed["tasks"], "task_id"), [&of_app["task_id"]]);
    let (_, listed) = alice.call(&world, Method::GET, "/tasks", Value::Null).await;
    assert_eq!(column(&listed["tasks"], "task_id"), [&of_user["task_id"]]);
}

#[tokio::test]
async fn a_user_owns_what_a_trusted_app_made_for_them_and_another_user_does_not() {
    let world = World::new().await;
    world.register("a").await;
    let [ana, bob] = [User::new(&world, "ana", "operator").await, User::new(&world, "bob", "operator").await];
    for (user, name) in [(&ana, "ana"), (&bob, "bob")] {
        world.delete(&format!("/bindings/{}", user.binding)).await;
        world
            .post("/bindings", json!({ "role": "viewer", "subject": format!("user:{name}"), "scope": "namespace:web" }))
            .await;
    }
    let who = json!({ "bk_app_code": "boss", "bk_app_secret": world.secret, "bk_username": "ana" }).to_string();
    let request = Request::post("/api/v1/operations").header("X-Bkapi-Authorization", who);
    let (status, task) = world.send(request.body(Body::from(start("a").to_string())).unwrap()).await;

    let path = format!("/tasks/{}", task["task_id"].as_str().unwrap());
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(ana.call(&world, Method::GET, &path, Value::Null).await.0, StatusCode::OK);
    assert_eq!(bob.call(&world, Method::GET, &path, Value::Null).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_retry_of_a_foreign_task_tells_nothing_about_it() {
    let world = World::new().await;
    world.register("a").await;
    let (_, task) = world.post("/operations", start("a")).await;
    let task = task["task_id"].as_str().unwrap();
    until_over(&world, task).await;
    let ana = User::new(&world, "ana", "operator").await;
    world.delete(&format!("/bindings/{}", ana.binding)).await;
    world.post("/bindings", json!({ "role": "operator", "subject": "user:ana", "scope": "namespace:other" })).await;

    let (status, answer) = ana.call(&world, Method::POST, &format!("/tasks/{task}/retry"), Value::Null).await;

    assert_eq!((status, error(&answer).0), (StatusCode::FORBIDDEN, "permission_denied"), "{answer}");
    assert!(!answer.to_string().contains("10.0.0.1"), "{answer}");
    let (_, own) = ana.call(&world, Method::GET, "/tasks", Value::Null).await;
    assert_eq!(own["tasks"], json!([]));
    assert_eq!(world.post(&format!("/tasks/{task}/retry"), Value::Null).await.0, StatusCode::ACCEPTED);
}

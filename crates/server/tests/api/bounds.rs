//! A binding with bounds: which specs an owner of a namespace may register, in every way to do so.

use axum::http::{Method, StatusCode};
use axum::{body::Body, http::Request};
use proctor_model::{Bounds, Code, Message, Outcome, TaskId};
use proctor_server::control::Session;
use proctor_store::{Binding, ProcessQuery};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::spec_calls::{Given, IP, Shape, SpecCall, spec_calls};
use crate::support::{Answer, ESB, SECRET, World};

const AGENT: &str = "020000000052540a9b2c1641";

/// The app `stranger` owns the namespaces web and job, but only as user web below /opt/web.
async fn world() -> World {
    let world = World::new().await;
    for scope in ["namespace:web", "namespace:job"] {
        bind(&world, scope, "web", "/opt/web").await;
    }
    world
}

/// Of an owner of everything; returns its id.
async fn unbounded_binding(world: &World, subject: &str) -> Uuid {
    let id = Uuid::now_v7();
    let (role, subject, scope) = ("owner".parse().unwrap(), subject.parse().unwrap(), "everything".parse().unwrap());
    let binding = Binding { id, role, subject, scope, bounds: Bounds::default(), created_at: 0 };
    world.store.put_binding(binding).await.unwrap().unwrap();
    id
}

async fn bind(world: &World, scope: &str, user: &str, root: &str) {
    let binding = Binding {
        id: Uuid::now_v7(),
        role: "owner".parse().unwrap(),
        subject: "app:stranger".parse().unwrap(),
        scope: scope.parse().unwrap(),
        bounds: Bounds { users: [user.parse().unwrap()].into(), roots: [root.parse().unwrap()].into() },
        created_at: 0,
    };
    world.store.put_binding(binding).await.unwrap().unwrap();
}

fn spec(user: &str, root: &str) -> Value {
    json!({
        "identity": { "proc_name": "m", "setup_path": root, "pid_path": format!("{root}/m.pid"), "user": user },
        "control": { "start_cmd": "./start", "stop_cmd": "./stop" },
        "resource": { "cpu": 10, "mem": 10 },
        "monitor_policy": { "auto_type": 1 },
    })
}

fn body(name: &str, spec: Option<Value>) -> Value {
    let mut body = json!({
        "bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger",
        "meta": { "namespace": "web", "name": name },
        "hosts": [{ "ip": IP, "bk_cloud_id": 0 }],
    });
    if let Some(spec) = spec {
        body["spec"] = spec;
    }
    body
}

/// The code and message of the only row, now or at the end of the task.
async fn row(world: &World, path: &str, body: &Value) -> (i64, String) {
    let answer = world.post_as_is(path, body).await;
    let data = answer.data();
    let rows = match data.get("task_id").or_else(|| data.get("bk_gse_taskid")) {
        Some(task) => world.finished(&format!("{ESB}/get_proc_operate_result_v2"), task).await,
        None => data.clone(),
    };
    let row = rows.as_object().unwrap().values().next().unwrap_or_else(|| panic!("no row: {}", answer.json)).clone();
    (row["error_code"].as_i64().unwrap(), row["error_msg"].as_str().unwrap_or_default().to_owned())
}

async fn registered(world: &World) -> Vec<(String, String)> {
    let (_, processes) = world.store.processes(&ProcessQuery::default()).await.unwrap();
    processes.iter().map(|record| (record.key.to_string(), record.spec.identity.user.to_string())).collect()
}

/// Inside the bounds.
const INSIDE: Given<'static> = Given {
    user: "web",
    setup_path: "/opt/web",
    pid_path: "/opt/web/m.pid",
    config_path: Some("/opt/web/m.conf"),
    log_path: Some("/opt/web/m.log"),
    configmap: Some("/opt/web/m.conf"),
    command: "./",
};

/// With one thing outside, and what a refusal says of it.
fn outside() -> [(Given<'static>, String); 6] {
    let roots = "is not below one of the allowed directories: /opt/web";
    let path = |field: &str, path: &str| format!("{field}: '{path}' {roots}");
    let user = "identity.user: 'root' is not one of the users allowed here: web".to_owned();
    [
        (Given { user: "root", ..INSIDE }, user),
        (Given { setup_path: "/opt/website", ..INSIDE }, path("identity.setup_path", "/opt/website")),
        (Given { pid_path: "/run/sshd.pid", ..INSIDE }, path("identity.pid_path", "/run/sshd.pid")),
        (Given { config_path: Some("/etc/shadow"), ..INSIDE }, path("identity.config_path", "/etc/shadow")),
        (Given { log_path: Some("/var/log/auth.log"), ..INSIDE }, path("identity.log_path", "/var/log/auth.log")),
        (Given { configmap: Some("/etc/shadow"), ..INSIDE }, path("configmap[0].path", "/etc/shadow")),
    ]
}

/// The code and message of the only target.
async fn verdict(world: &World, session: &Session, call: &SpecCall, body: &Value) -> (i64, String) {
    let who = json!({ "bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger" });
    let Answer { json, .. } = world.call(&who, &call.method, &call.path, body).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if call.is_native() {
        let (row, planned) = (&json["rows"][0], &json["hosts"][0]["refused"]);
        let said = if row.is_null() { planned } else { row };
        return (said["code"].as_i64().unwrap_or(0), text(&said["message"]));
    }
    let data = &json["data"];
    let Some(task) = data["task_id"].as_str().or_else(|| data["bk_gse_taskid"].as_str()) else {
        let row = data.as_object().and_then(|rows| rows.values().next());
        // Forbidden on its only target, an operation is refused as a whole.
        return match row {
            Some(row) => (row["error_code"].as_i64().unwrap(), text(&row["error_msg"])),
            None => (json["code"].as_i64().unwrap(), text(&json["message"])),
        };
    };
    let task = world.store.task(task.parse().unwrap()).await.unwrap().unwrap();
    let [target] = &task.targets[..] else { panic!("one target: {task:?}") };
    let delivered = world.control.take_deliveries(session, 10);
    assert_eq!(delivered.len(), 1, "what is open is delivered: {task:?}");
    assert_eq!(target.outcome, None, "{task:?}");
    (0, String::new())
}

#[tokio::test]
async fn a_spec_outside_the_bounds_is_refused_by_every_call_that_carries_one_and_nothing_is_registered() {
    let world = world().await;
    let session = world.connect(AGENT).await;
    let (mut wrong, mut walked) = (Vec::new(), 0);

    for call in spec_calls() {
        let refused = if call.operates() { call.refused_code() } else { 403 };
        for (op_type, kind) in call.operations() {
            for (given, problem) in outside() {
                if call.is_job() && given.configmap != INSIDE.configmap {
                    continue; // there is none in this family
                }
                walked += 1;
                let (code, message) = verdict(&world, &session, &call, &call.body("m", op_type, &given)).await;
                if code != refused || !message.contains(&problem) {
                    wrong.push(format!("{} {kind:?}: {code} {message}, not {problem}", call.path));
                }
            }
        }
    }

    assert_eq!(registered(&world).await, []);
    // 10 registering calls on GSE's paths and 2 native ones; 10 that operate; on two paths of JOB, 2 that operate and
    // one that manages and releases.
    assert_eq!(walked, (10 + 2) * 6 + 10 * 8 * 6 + 2 * (2 * 8 + 2) * 5);
    assert!(wrong.is_empty(), "{} of {walked}:\n{}", wrong.len(), wrong.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn a_spec_inside_the_bounds_is_taken_by_every_call_that_carries_one() {
    let world = world().await;
    let session = world.connect(AGENT).await;
    let mut wrong = Vec::new();

    for (number, call) in spec_calls().into_iter().enumerate() {
        for (op_type, kind) in call.operations() {
            let name = format!("m-{number}-{op_type}");
            let (code, message) = verdict(&world, &session, &call, &call.body(&name, op_type, &INSIDE)).await;
            if code != 0 {
                wrong.push(format!("{} {kind:?}: {code} {message}", call.path));
            }
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn a_retry_is_held_to_the_bounds_that_its_caller_has_by_then() {
    let world = World::new().await;
    let unbounded = unbounded_binding(&world, "app:stranger").await;
    let session = world.connect(AGENT).await;
    let who = json!({ "bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger" });
    let v2 = SpecCall { method: Method::POST, path: format!("{ESB}/operate_proc_v2"), shape: Shape::Operate };
    let mut failed = Vec::new();
    for (op_type, _) in v2.operations() {
        let (name, given) = (format!("m-{op_type}"), Given { user: "root", ..INSIDE });
        let answer = world.call(&who, &v2.method, &v2.path, &v2.body(&name, op_type, &given)).await;
        let task: TaskId = answer.data()["task_id"].as_str().unwrap().parse().unwrap();
        let deliveries = world.control.take_deliveries(&session, 10);
        for delivery in &deliveries {
            let outcome = Outcome::new(Code::CheckFailed, Message::foreign("said the test"), false);
            world.control.arrived(&session, delivery.operation, outcome).await.unwrap();
        }
        world.finished(&format!("{ESB}/get_proc_operate_result_v2"), &json!(task.to_string())).await;
        failed.push((op_type, name, task));
    }
    // What they registered is registered; what has another spec by now is theirs again.
    for (_, name, _) in &failed {
        world.post(&format!("{ESB}/unregister_proc_info"), body(name, None)).await.data();
    }

    assert!(world.store.delete_binding(unbounded).await.unwrap());
    bind(&world, "namespace:web", "web", "/opt/web").await;

    for (op_type, _, task) in failed {
        let answer = world.call(&who, &Method::POST, &format!("/api/v1/tasks/{task}/retry"), &json!({})).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "op {op_type}: {}", answer.json);
        let problem = "identity.user: 'root' is not one of the users allowed here: web";
        let message = answer.json["error"]["message"].as_str().unwrap();
        assert!(message.contains(problem), "op {op_type}: {message}");
        assert!(world.control.take_deliveries(&session, 10).is_empty(), "op {op_type}");
    }
    assert_eq!(registered(&world).await, []);
    world.end().await;
}

#[tokio::test]
async fn a_plan_says_what_would_be_refused_and_leaves_alone_what_would_not_change() {
    let world = world().await;
    let who = json!({ "bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger" });
    let root = spec("root", "/data");
    world.post(&format!("{ESB}/register_proc_info"), body("m", Some(root.clone()))).await.data();
    let plan = async |spec: Value| {
        let body = json!({ "meta": { "namespace": "web", "name": "m" }, "hosts": [{ "ip": IP, "bk_cloud_id": 0 }],
                           "spec": spec });
        let answer = world.call(&who, &Method::POST, "/api/v1/processes/plan", &body).await;
        answer.json["hosts"][0].clone()
    };

    let (same, other, inside) =
        (plan(root).await, plan(spec("root", "/opt/web")).await, plan(spec("web", "/opt/web")).await);

    assert_eq!((&same["refused"], &same["changes"]), (&Value::Null, &json!([])), "{same}");
    assert_eq!((&other["refused"]["code"], &other["registered"]), (&json!(403), &json!(true)), "{other}");
    let changed: Vec<&str> =
        other["changes"].as_array().unwrap().iter().filter_map(|one| one["path"].as_str()).collect();
    assert_eq!(changed, ["identity.pid_path", "identity.setup_path"], "{other}");
    assert_eq!(inside["refused"], Value::Null, "{inside}");
    world.end().await;
}

#[tokio::test]
async fn a_spec_inside_the_bounds_of_one_binding_is_registered() {
    let world = world().await;
    bind(&world, "namespace:web", "db", "/opt/db").await;

    for (name, user, root, code) in [
        ("a", "web", "/opt/web", 0),
        ("b", "db", "/opt/db", 0),
        ("c", "web", "/opt/db", 403),
        ("d", "db", "/opt/web", 403),
    ] {
        let body = body(name, Some(spec(user, root)));
        assert_eq!(row(&world, &format!("{ESB}/register_proc_info"), &body).await.0, code, "{name}");
    }
    world.bind("app:stranger", "owner", "namespace:web").await;
    let unbounded = body("c", Some(spec("root", "/")));
    assert_eq!(row(&world, &format!("{ESB}/register_proc_info"), &unbounded).await.0, 0, "a binding without bounds");

    let expected = [("web/a", "web"), ("web/b", "db"), ("web/c", "root")];
    assert_eq!(registered(&world).await, expected.map(|(key, user)| (key.to_owned(), user.to_owned())));
    world.end().await;
}

#[tokio::test]
async fn what_somebody_else_registered_may_be_operated_as_it_is_but_not_changed() {
    let world = world().await;
    let root = spec("root", "/data");
    world.post(&format!("{ESB}/register_proc_info"), body("m", Some(root.clone()))).await.data();

    let mut same = body("m", Some(root));
    same["op_type"] = json!(0);
    let mut other = body("m", Some(spec("root", "/data/other")));
    other["op_type"] = json!(0);
    let operate = format!("{ESB}/operate_proc_v2");

    // The host is offline: 117 is what an admitted target gets.
    assert_eq!(row(&world, &operate, &same).await.0, 117);
    let who = json!({ "bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger" });
    let refused = world.call(&who, &Method::POST, &operate, &other).await;
    assert_eq!(refused.code(), 1_306_403, "{}", refused.json);
    assert_eq!(registered(&world).await, [("web/m".to_owned(), "root".to_owned())]);
    world.end().await;
}

#[tokio::test]
async fn bounds_are_given_with_a_binding_and_shown_and_bad_ones_are_named() {
    let world = World::new().await;
    let call = async |method: Method, path: &str, body: Value| {
        let who = json!({ "bk_app_code": crate::support::APP, "bk_app_secret": SECRET, "bk_username": "admin" });
        let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        let request = request.header("X-Bkapi-Authorization", who.to_string());
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let answer = world.send(request.body(body).unwrap()).await;
        (answer.status, answer.json)
    };
    let binding = |users: Value, roots: Value| json!({ "role": "owner", "subject": "user:ana", "scope": "namespace:web", "allow_users": users, "allow_roots": roots });

    let (made, answer) =
        call(Method::POST, "/bindings", binding(json!(["web", "app", "web"]), json!(["/opt/web"]))).await;
    let (_, listed) = call(Method::GET, "/bindings?subject=user:ana", Value::Null).await;
    let (_, audit) = call(Method::GET, "/audit?action=create_binding", Value::Null).await;

    assert_eq!(
        (made, &answer["allow_users"], &answer["allow_roots"]),
        (StatusCode::CREATED, &json!(["app", "web"]), &json!(["/opt/web"]))
    );
    assert_eq!(listed["bindings"], json!([answer]));
    assert_eq!(
        audit["entries"][0]["targets"],
        json!(["user:ana as owner on namespace:web within users app, web; roots /opt/web"])
    );
    let many: Vec<String> = (0..65).map(|number| format!("/opt/{number}")).collect();
    for (users, roots, field) in [
        (json!(["a:b"]), json!([]), "allow_users[0]"),
        (json!([]), json!(["/opt", "opt"]), "allow_roots[1]"),
        (json!([]), json!(["/opt/../etc"]), "allow_roots[0]"),
        (json!([""]), json!([]), "allow_users[0]"),
        (json!([]), json!(many), "allow_roots"),
    ] {
        let (status, answer) = call(Method::POST, "/bindings", binding(users, roots)).await;
        assert_eq!((status, &answer["error"]["field"]), (StatusCode::BAD_REQUEST, &json!(field)), "{answer}");
    }
    assert_eq!(call(Method::GET, "/bindings?subject=user:ana", Value::Null).await.1, listed);
    world.end().await;
}

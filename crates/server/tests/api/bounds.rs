//! A binding with bounds: which specs an owner of a namespace may register, by every way to do that.

use axum::http::{Method, StatusCode};
use axum::{body::Body, http::Request};
use proctor_model::Bounds;
use proctor_store::{Binding, ProcessQuery};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{ESB, JOB, SECRET, World};

const IP: &str = "10.0.0.1";

/// The app `stranger` owns the namespaces web and job, but only as user web below /opt/web.
async fn world() -> World {
    let world = World::new().await;
    for scope in ["namespace:web", "namespace:job"] {
        bind(&world, scope, "web", "/opt/web").await;
    }
    world
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

#[tokio::test]
async fn a_spec_outside_the_bounds_is_refused_by_every_call_that_carries_one_and_nothing_is_registered() {
    let world = world().await;
    let outside = [
        (spec("root", "/opt/web"), "identity.user: 'root' is not one of the users that may be used here: web"),
        (
            spec("web", "/opt/website"),
            "identity.setup_path: '/opt/website' is not below one of the allowed directories: /opt/web",
        ),
    ];
    let registering = [("register_proc_info", None), ("operate_proc_v2", Some(0)), ("operate_proc_v2", Some(1))];

    for (spec, problem) in &outside {
        for (call, op_type) in registering {
            let mut body = body("m", Some(spec.clone()));
            if let Some(op_type) = op_type {
                body["op_type"] = json!(op_type);
            }
            let (code, message) = row(&world, &format!("{ESB}/{call}"), &body).await;
            assert_eq!(code, 403, "{call}: {message}");
            assert!(message.contains(problem), "{call}: {message}");
        }
    }
    let process = json!({
        "bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger", "bk_biz_id": 2, "op_type": 0,
        "process_infos": [{ "proc_name": "m", "setup_path": "/opt/web", "pid_path": "/opt/web/m.pid", "account": "root",
                            "start_cmd": "./start", "type": 1, "ip_list": [{ "bk_cloud_id": 0, "ip": IP }] }],
    });
    let job = world.post_as_is(&format!("{JOB}/operate_process"), &process).await;
    assert_eq!(job.code(), 9_900_403, "forbidden on its only target, it is refused as a whole: {}", job.json);
    let outside = "identity.user: 'root' is not one of the users that may be used here: web";
    assert!(job.message().contains(outside), "{}", job.json);
    assert_eq!(job.json["permission"]["actions"][0]["id"], "register");
    assert_eq!(registered(&world).await, []);
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

    // The host is offline: 117 is what a target gets that was let in.
    assert_eq!(row(&world, &operate, &same).await.0, 117);
    assert_eq!(row(&world, &operate, &other).await.0, 403);
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

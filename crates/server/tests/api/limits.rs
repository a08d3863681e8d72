//! Limits: targets per call, calls per second, concurrent calls.

use std::num::NonZeroU32;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_server::api::Settings;
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, GATEWAY, JOB, SECRET, World, on_host, spec};

fn named(from: u32, count: u32) -> Vec<Value> {
    (from..from + count).map(|number| json!(format!("agent-{number}"))).collect()
}

fn operation(name: &str, agents: Vec<Value>) -> Value {
    json!({"meta": {"namespace": "web", "name": name}, "op_type": 0, "spec": spec(), "agent_id_list": agents})
}

#[tokio::test]
async fn thirty_thousand_targets_in_an_item_and_a_hundred_thousand_in_a_batch_are_taken() {
    let world = World::new().await;
    let items: Vec<Value> = (0..4).map(|part| operation(&format!("p{part}"), named(part * 30_000, 30_000))).collect();

    let answer = world.post(&format!("{ESB}/operate_proc_multi"), json!({"proc_operate_req": items})).await;

    let task = answer.data()["task_id"].clone();
    let rows = world.post(&format!("{ESB}/get_proc_operate_result_v2"), json!({"task_id": task})).await;
    assert_eq!(rows.data().as_object().unwrap().len(), 120_000);
    world.end().await;
}

#[tokio::test]
async fn beyond_two_hundred_thousand_targets_a_request_is_refused_and_nothing_happens() {
    let world = World::new().await;
    let one = operation("a", named(0, 200_001));
    let two = json!({"proc_operate_req": [operation("a", named(0, 150_000)), operation("b", named(0, 150_000))]});

    let one = world.post(&format!("{GATEWAY}/operate_proc_v2"), one).await;
    let two = world.post(&format!("{ESB}/operate_proc_multi"), two).await;

    assert_eq!((one.status, one.code()), (StatusCode::OK, 1_306_406));
    assert_eq!(one.message(), "agent_id_list: more than 200000 targets in one request: split it");
    assert_eq!(two.message(), "proc_operate_req[1]: more than 200000 targets in one request: split it");
    world.end().await;
}

fn listing(app: &str) -> Request<Body> {
    let who = json!({"bk_app_code": app, "bk_app_secret": SECRET, "bk_username": "admin"}).to_string();
    Request::get("/api/v1/hosts").header("X-Bkapi-Authorization", who).body(Body::empty()).unwrap()
}

/// A call of this app in each family.
async fn called_everywhere(world: &World, app: &str) -> [Answer; 4] {
    let called = |path: String, mut body: Value| async move {
        body["bk_app_code"] = json!(app);
        body["bk_app_secret"] = json!(SECRET);
        body["bk_username"] = json!("admin");
        world.post_as_is(&path, &body).await
    };
    let body = on_host("a", "10.0.0.1");
    [
        called(format!("{ESB}/get_proc_status"), body.clone()).await,
        called(format!("{JOB}/get_proc_result"), json!({"bk_biz_id": 1, "bk_gse_taskid": "x"})).await,
        called(format!("{GATEWAY}/get_proc_status_v2"), body).await,
        world.send(listing(app)).await,
    ]
}

/// Two apps that are no administrators.
pub(crate) async fn with_ordinary_apps(world: &World) {
    for app in ["ordinary", "other"] {
        world.app(app).await;
        world.bind(&format!("app:{app}"), "viewer", "everything").await;
    }
}

/// A call that is no longer polled stays where it is: at the store, with its permit. Detected by calls of `other`
/// being refused meanwhile.
pub(crate) async fn held_call<'a>(
    world: &'a World,
    app: &'a str,
    other: &str,
) -> std::pin::Pin<Box<dyn Future<Output = Answer> + 'a>> {
    loop {
        let mut call = Box::pin(world.send(listing(app)));
        while futures::poll!(&mut call).is_pending() {
            if world.send(listing(other)).await.status == StatusCode::TOO_MANY_REQUESTS {
                return call;
            }
        }
    }
}

#[tokio::test]
async fn an_app_that_calls_too_often_is_told_so_in_the_shape_of_each_family() {
    let world = World::with(Settings { rate_limit: Some("1/s".parse().unwrap()), ..Settings::default() }).await;
    // Until the account is empty, which takes more than one call on a slow machine.
    while world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await.code() == 0 {}

    let [esb, job, gateway, native] = called_everywhere(&world, APP).await;
    let other = world.post_as_is(&format!("{ESB}/get_proc_status"), &json!({"bk_app_code": "stranger"})).await;

    assert_eq!((esb.status, esb.code()), (StatusCode::OK, 1_306_429), "{}", esb.json);
    assert!(esb.message().contains("sample_app exceeded its rate limit"), "{}", esb.message());
    assert_eq!((job.status, job.code()), (StatusCode::OK, 1_306_429));
    assert_eq!(job.json["job_request_id"], job.json["request_id"]);
    assert_eq!((gateway.status, gateway.code()), (StatusCode::TOO_MANY_REQUESTS, 1_642_901));
    assert_eq!(gateway.headers["Retry-After"], "1");
    assert_eq!(gateway.json["code_name"], "RATE_LIMIT_RESTRICTION");
    assert_eq!(
        (native.status, &native.json["error"]["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests"))
    );
    assert_eq!(other.code(), 1_306_000, "another app has an account of its own");
    world.end().await;
}

#[tokio::test]
async fn a_server_without_a_free_call_says_so_in_the_shape_of_each_family_and_serves_administrators() {
    let world = World::with(Settings { concurrency_limit: NonZeroU32::MIN, ..Settings::default() }).await;
    with_ordinary_apps(&world).await;
    // The first call has the server load its keys, which nobody else may do meanwhile.
    let when_free = called_everywhere(&world, APP).await;
    let held = held_call(&world, "ordinary", "other").await;

    let [esb, job, gateway, native] = called_everywhere(&world, "other").await;
    let of_administrator = called_everywhere(&world, APP).await;
    let health = world.get("/healthz").await;
    let listed = held.await;
    let after = world.send(listing("other")).await;

    assert_eq!((esb.status, esb.code()), (StatusCode::OK, 1_306_429));
    assert_eq!((job.status, job.code()), (StatusCode::OK, 1_306_429));
    assert_eq!((gateway.status, gateway.code()), (StatusCode::TOO_MANY_REQUESTS, 1_642_904));
    assert_eq!(native.status, StatusCode::TOO_MANY_REQUESTS);
    for (free, held) in when_free.iter().zip(&of_administrator) {
        assert_eq!((held.status, &held.json["code"]), (free.status, &free.json["code"]), "{}", held.json);
    }
    assert_eq!(of_administrator[3].status, StatusCode::OK);
    assert_eq!((health.status, listed.status, after.status), (StatusCode::OK, StatusCode::OK, StatusCode::OK));
    world.end().await;
}

#[tokio::test]
async fn status_queries_of_what_is_not_there_cannot_fill_the_store() {
    targets_that_are_not_there_are_bounded("viewer", STATUS).await;
}

#[tokio::test]
async fn operations_on_what_is_not_there_cannot_fill_the_store() {
    targets_that_are_not_there_are_bounded("operator", STOP).await;
}

/// As `op_type`.
const STOP: u32 = 1;
const STATUS: u32 = 2;

async fn targets_that_are_not_there_are_bounded(role: &str, op_type: u32) {
    let world = World::new().await;
    world.app("reader").await;
    world.bind("app:reader", role, "everything").await;
    let given = if op_type == STATUS { Value::Null } else { spec() };
    let body = |count: u32| {
        let ip =
            |number: u32| json!({ "ip": std::net::Ipv4Addr::from(0x0b00_0000 + number).to_string(), "bk_cloud_id": 0 });
        json!({ "bk_app_code": "reader", "bk_app_secret": SECRET, "bk_username": "ana", "op_type": op_type, "spec": given,
                "meta": { "namespace": "web", "name": "m".repeat(128) }, "hosts": (0..count).map(ip).collect::<Vec<_>>() })
    };
    let status = format!("{ESB}/operate_proc");

    let some = world.post_as_is(&status, &body(100)).await;
    // Of these names; of short ones there may be more.
    let too_many = proctor_server::control::STRANGER_BYTES_MAX / 600;
    let many = world.post_as_is(&status, &body(too_many)).await;
    let gateway = format!("{GATEWAY}/operate_proc_v2");
    let credentials = json!({ "bk_app_code": "reader", "bk_app_secret": SECRET, "bk_username": "bob" });
    let by_gateway = world.call(&credentials, &Method::POST, &gateway, &body(too_many)).await;
    let again = world.post_as_is(&status, &body(100)).await;

    let task = some.data()["task_id"].clone();
    let rows = world.finished(&format!("{ESB}/get_proc_operate_result"), &task).await;
    assert_eq!(rows.as_object().unwrap().len(), 100, "a few unknown hosts have their rows");
    assert_eq!(many.code(), 1_306_000, "{}", many.json);
    assert!(many.message().contains("split the call"), "{}", many.json);
    assert_eq!(by_gateway.status.as_u16(), 413, "{}", by_gateway.json);
    again.data();
    assert_eq!(world.store.task_ids(100).await.unwrap().len(), 2);
    world.end().await;
}

//! `/procapi`, called by an unmodified ESB: GET with a body, names without a secret.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_server::api::Settings;
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, SECRET, World, on_host, registered, spec};

const ESB_ADDRESS: &str = "10.1.2.3";

async fn behind_esb() -> World {
    let world = World::with(Settings { procapi_from: "10.1.2.0/24".parse().unwrap(), ..Settings::default() }).await;
    world.bind("app:bk_nodeman", "owner", "everything").await;
    world
}

/// As an ESB sends it: no useful Content-Type, and the names in headers.
fn request(method: Method, path: &str, body: &Value) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(format!("/procapi/{path}"))
        .header("Bk-App-Code", "bk_nodeman")
        .header("Bk-Username", "admin")
        .header("X-Bkapi-Request-Id", "esb-request-1")
        .body(Body::from(body.to_string()))
        .unwrap()
}

async fn call(world: &World, method: Method, path: &str, body: &Value) -> Answer {
    world.send_from(ESB_ADDRESS, request(method, path, body)).await
}

#[tokio::test]
async fn a_process_lives_its_life_through_the_backend_calls() {
    let world = behind_esb().await;
    let row = "0:7:10.0.0.1:web:a";
    let code = |answer: &Answer| answer.data()[row]["error_code"].as_i64().unwrap();
    let whole = registered("a", "10.0.0.1");
    let here = on_host("a", "10.0.0.1");

    let made = call(&world, Method::POST, "v1/proc/procinfo", &whole).await;
    let again = call(&world, Method::POST, "v1/proc/procinfo", &whole).await;
    let updated = call(&world, Method::PUT, "v1/proc/procinfo/", &whole).await;
    let status = call(&world, Method::GET, "v1/proc/status", &here).await;
    let by_id = json!({"meta": {"namespace": "web", "name": "a"}, "agent_id_list": ["0:10.0.0.1"]});
    let status_v2 = call(&world, Method::GET, "v2/proc/status", &by_id).await;
    let listed = call(&world, Method::GET, "v1/proc/syncstatus", &json!({"meta": {"namespace": "web"}})).await;
    let gone = call(&world, Method::DELETE, "v1/proc/procinfo", &here).await;

    assert_eq!((code(&made), code(&again), code(&updated), code(&gone)), (0, 850, 0, 0));
    assert_eq!(status.data()["proc_infos"][0]["host"]["bk_supplier_id"], 7);
    assert_eq!(status_v2.data()["proc_infos"][0]["bk_agent_id"], "0:10.0.0.1");
    assert_eq!(listed.data()["count"], 1);
    assert_eq!((&made.json["message"], &made.json["request_id"]), (&json!("success"), &json!("esb-request-1")));
    world.end().await;
}

#[tokio::test]
async fn operations_and_their_results_are_one_path_with_two_methods() {
    let world = behind_esb().await;
    let mut v1 = on_host("a", "10.0.0.1");
    v1["op_type"] = json!(1);
    let mut v2 = v1.clone();
    v2["spec"] = spec();
    let cases = [
        ("v1/proc/operate", "v1/proc/operate", v1, "0:7:10.0.0.1:web:a"),
        ("v2/proc/operate", "v2/proc/operate", v2.clone(), "0:10.0.0.1:web:a"),
        ("v2/proc/multioperate", "v2/proc/operate", json!({"proc_operate_req": [v2]}), "0:10.0.0.1:web:a"),
    ];

    for (submit, result, body, row) in cases {
        let task = call(&world, Method::POST, submit, &body).await.data()["task_id"].clone();
        let rows = call(&world, Method::GET, result, &json!({"task_id": task})).await;

        let keys: Vec<&String> = rows.data().as_object().unwrap().keys().collect();
        assert_eq!(keys, [row], "{submit}");
    }
    world.end().await;
}

#[tokio::test]
async fn groups_are_set_by_post_and_read_by_get() {
    let world = behind_esb().await;
    let limits = json!({"cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 0});
    let mut body = on_host("", "10.0.0.1");
    body["spec"] = json!({"process_group": [{"id": "web", "resource": limits}]});

    let set = call(&world, Method::POST, "v1/proc/groupinfo", &body).await;
    let read = call(&world, Method::GET, "v1/proc/groupinfo", &on_host("", "10.0.0.1")).await;

    assert_eq!(set.data()["0:7:10.0.0.1:web"]["error_code"], 0);
    assert_eq!(read.data()["process_group_infos"][0]["id"], "web");
    world.end().await;
}

#[tokio::test]
async fn names_without_a_secret_are_believed_only_from_the_networks_that_are_configured() {
    let world = behind_esb().await;
    let default = World::new().await;
    let body = on_host("a", "10.0.0.1");
    let make = || request(Method::GET, "v1/proc/status", &body);

    let outside = world.send_from("10.1.3.3", make()).await;
    let unknown = world.send(make()).await;
    let by_default = default.send_from(ESB_ADDRESS, make()).await;
    let mut elsewhere = request(Method::POST, "", &body);
    *elsewhere.uri_mut() = format!("{ESB}/get_proc_status").parse().unwrap();
    let other_family = world.send_from(ESB_ADDRESS, elsewhere).await;

    for answer in [&outside, &unknown, &by_default] {
        assert_eq!((answer.status, answer.code()), (StatusCode::OK, 1_306_000));
        assert!(answer.message().contains("--procapi-from"), "{}", answer.message());
    }
    assert_eq!(other_family.message(), "APP Code [bk_app_code] cannot be empty");
    world.end().await;
    default.end().await;
}

#[tokio::test]
async fn ordinary_credentials_work_as_well() {
    let world = World::new().await;
    let mut body = on_host("a", "10.0.0.1");
    for (field, value) in [("bk_app_code", APP), ("bk_app_secret", SECRET), ("bk_username", "admin")] {
        body[field] = json!(value);
    }

    world.send_from("192.0.2.1", request(Method::GET, "v1/proc/status", &body)).await.data();

    let mut nameless = request(Method::GET, "v1/proc/status", &on_host("a", "10.0.0.1"));
    nameless.headers_mut().remove("Bk-App-Code");
    assert_eq!(world.send_from("192.0.2.1", nameless).await.message(), "APP Code [bk_app_code] cannot be empty");
    world.end().await;
}

#[tokio::test]
async fn a_request_without_a_user_is_refused() {
    let world = behind_esb().await;
    let mut nobody = request(Method::GET, "v1/proc/status", &on_host("a", "10.0.0.1"));
    nobody.headers_mut().remove("Bk-Username");

    let answer = world.send_from(ESB_ADDRESS, nobody).await;

    assert_eq!((answer.status, answer.code()), (StatusCode::OK, 1_306_401));
    world.end().await;
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_not_found() {
    let world = behind_esb().await;

    let answer = call(&world, Method::DELETE, "v1/proc/status", &json!({})).await;

    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.json["result"], false);
    world.end().await;
}

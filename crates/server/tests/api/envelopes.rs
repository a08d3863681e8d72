//! The form of answers: slashes, content types, unknown paths, malformed and oversized bodies.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_server::api::{self, ApiState, Settings};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{ESB, GATEWAY, JOB, World, on_host, post_request};

#[tokio::test]
async fn a_trailing_slash_changes_nothing_on_any_path() {
    let world = World::new().await;
    let paths = [
        format!("{ESB}/get_proc_status_v2"),
        format!("{GATEWAY}/get_proc_status_v2"),
        "/api/v2/proc/get_proc_status_v2".to_owned(),
        format!("{ESB}/api/v2/proc/get_proc_status_v2"),
    ];

    for path in paths {
        for slash in ["", "/"] {
            let answer = world.post(&format!("{path}{slash}"), on_host("a", "10.0.0.1")).await;

            assert_eq!(*answer.data(), json!({"proc_infos": []}));
        }
    }
    world.end().await;
}

#[tokio::test]
async fn an_answer_has_exactly_the_documented_fields() {
    let world = World::new().await;

    let gse = world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await;
    let job = world.post(&format!("{JOB}/get_proc_result"), json!({"bk_biz_id": 1, "bk_gse_taskid": "x"})).await;

    let mut fields: Vec<&String> = gse.json.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["code", "data", "message", "request_id", "result"]);
    assert_eq!(gse.message(), "success");
    assert_eq!(gse.json["request_id"].as_str().unwrap().len(), 32);
    assert_eq!(job.json["job_request_id"], job.json["request_id"]);
    world.end().await;
}

#[tokio::test]
async fn the_callers_request_id_comes_back() {
    let world = World::new().await;
    let request = Request::post(format!("{ESB}/get_proc_status"))
        .header("X-Bkapi-Request-Id", "d2033af2-fef2-4e6b-9916-16f54cf792ba")
        .body(Body::from("{}"))
        .unwrap();

    let answer = world.send(request).await;

    assert_eq!(answer.json["request_id"], "d2033af2-fef2-4e6b-9916-16f54cf792ba");
    assert_eq!(answer.headers["X-Bkapi-Request-Id"], "d2033af2-fef2-4e6b-9916-16f54cf792ba");
    world.end().await;
}

#[tokio::test]
async fn a_body_is_json_whatever_its_content_type_says() {
    let world = World::new().await;
    let mut body = on_host("a", "10.0.0.1");
    body["bk_app_code"] = json!(crate::support::APP);
    body["bk_app_secret"] = json!(crate::support::SECRET);
    body["bk_username"] = json!("admin");

    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"] {
        let request = Request::post(format!("{ESB}/get_proc_status/"))
            .header("Content-Type", content_type)
            .body(Body::from(body.to_string()))
            .unwrap();

        world.send(request).await.data();
    }
    world.end().await;
}

#[tokio::test]
async fn a_malformed_body_is_reported_with_its_position() {
    let world = World::new().await;

    for path in [format!("{ESB}/operate_proc"), format!("{JOB}/operate_process")] {
        let answer = world.send(post_request(&path, "{\"meta\": }".to_owned())).await;

        assert_eq!((answer.status, answer.code()), (StatusCode::OK, 1_306_000));
        assert_eq!(answer.message(), "the body is not JSON: line 1 column 10");
        assert_eq!(answer.json["result"], false);
    }
    world.end().await;
}

#[tokio::test]
async fn a_field_that_does_not_fit_has_the_number_of_its_family() {
    let world = World::new().await;

    let esb = world.post(&format!("{ESB}/operate_proc"), json!({})).await;
    let gateway = world.post(&format!("{GATEWAY}/operate_proc_v2"), json!({})).await;
    let job = world.post(&format!("{JOB}/operate_process"), json!({})).await;

    assert_eq!((esb.status, esb.code(), esb.message()), (StatusCode::OK, 1_306_406, "meta: is missing"));
    assert_eq!((gateway.status, gateway.code()), (StatusCode::OK, 1_306_406));
    assert_eq!((job.status, job.code()), (StatusCode::OK, 1_241_002));
    world.end().await;
}

#[tokio::test]
async fn a_path_that_nothing_serves_is_told_in_the_shape_of_its_family() {
    let world = World::new().await;

    let esb = world.post_as_is(&format!("{ESB}/no_such_call/"), &json!({})).await;
    let job = world.get(&format!("{JOB}/no_such_call")).await;
    let root = world.get("/").await;
    let gateway = world.post_as_is(&format!("{GATEWAY}/no_such_call"), &json!({})).await;
    let method = world.send(Request::put(format!("{ESB}/operate_proc")).body(Body::empty()).unwrap()).await;

    for answer in [esb, job, root, method] {
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(answer.json, json!({"result": false, "data": null, "message": "The content does not exist"}));
    }
    assert_eq!((gateway.status, gateway.code()), (StatusCode::NOT_FOUND, 1_640_401));
    assert_eq!(gateway.headers["X-Bkapi-Error-Code"], "1640401");
    world.end().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_in_the_shape_of_its_family() {
    let world = World::new().await;
    let body = " ".repeat(64 * 1024 * 1024 + 1);

    let esb = world.send(post_request(&format!("{ESB}/operate_proc"), body.clone())).await;
    let gateway = world.send(post_request(&format!("{GATEWAY}/operate_proc_v2"), body)).await;

    assert_eq!((esb.status, esb.code()), (StatusCode::OK, 1_306_000));
    assert_eq!(esb.message(), "the body is larger than 64 MiB");
    assert_eq!((gateway.status, gateway.code()), (StatusCode::PAYLOAD_TOO_LARGE, 1_641_301));
    world.end().await;
}

#[tokio::test]
async fn health_waits_for_the_agent_that_it_was_told_of() {
    let world = World::new().await;
    let wait_for = Some("020000000052540a9b2c1641".parse().unwrap());
    let waiting = api::router(ApiState::new(world.control.clone(), wait_for, Settings::default()));

    for path in ["/healthz", "/readyz", "/healthz/"] {
        let well = world.get(path).await;
        let not_yet = waiting.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();

        assert_eq!((well.status, well.json), (StatusCode::OK, json!({"status": "ok"})));
        assert_eq!(not_yet.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = axum::body::to_bytes(not_yet.into_body(), 4096).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["reason"], "agent 020000000052540a9b2c1641 is not connected yet");
    }
    world.end().await;
}

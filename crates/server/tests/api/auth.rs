//! Who may call, and where the credentials may be.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, GATEWAY, JOB, SECRET, World, on_host};

fn credentials(app: &str, secret: &str) -> Value {
    json!({"bk_app_code": app, "bk_app_secret": secret, "bk_username": "admin"})
}

async fn with_header(world: &World, path: &str, header: &str, body: &Value) -> Answer {
    let request =
        Request::post(path).header("X-Bkapi-Authorization", header).body(Body::from(body.to_string())).unwrap();
    world.send(request).await
}

fn merged(mut body: Value, other: &Value) -> Value {
    for (name, value) in other.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn credentials_come_in_the_body_the_query_or_the_header() {
    let world = World::new().await;
    let path = format!("{ESB}/get_proc_status");
    let right = credentials(APP, SECRET);
    let old_names = json!({"app_code": APP, "app_secret": SECRET, "username": "admin"});
    let with_token = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_token": "anything"});
    let body = on_host("a", "10.0.0.1");

    let in_header = with_header(&world, &path, &right.to_string(), &body).await;
    in_header.data();
    for params in [right, old_names, with_token] {
        world.post_as_is(&path, &merged(body.clone(), &params)).await.data();
    }
    let query = format!("bk_app_code={APP}&bk_app_secret={SECRET}&bk_username=admin&bk_biz_id=2&bk_gse_taskid=x");
    let in_query = world.get(&format!("{JOB}/get_proc_result/?{query}")).await;

    assert_eq!(in_query.code(), 1_210_001, "past the credentials: {}", in_query.json);
    world.end().await;
}

#[tokio::test]
async fn a_header_is_used_alone() {
    let world = World::new().await;
    let path = format!("{ESB}/get_proc_status");
    let body = merged(on_host("a", "10.0.0.1"), &credentials(APP, SECRET));

    let empty = with_header(&world, &path, "{}", &body).await;
    let broken = with_header(&world, &path, "{", &body).await;

    assert_eq!((empty.status, empty.code()), (StatusCode::OK, 1_306_000));
    assert_eq!(empty.message(), "APP Code [bk_app_code] cannot be empty");
    assert_eq!((broken.status, broken.code()), (StatusCode::OK, 1_306_406));
    world.end().await;
}

#[tokio::test]
async fn an_unknown_app_and_a_wrong_secret_get_one_answer() {
    let world = World::new().await;
    let path = format!("{ESB}/get_proc_status");

    let unknown = world.post_as_is(&path, &credentials("nobody", SECRET)).await;
    let wrong = world.post_as_is(&path, &credentials(APP, "guess")).await;

    for answer in [&unknown, &wrong] {
        assert_eq!((answer.status, answer.code()), (StatusCode::OK, 1_306_000));
        assert_eq!(answer.json["result"], false);
        assert_eq!(answer.json["data"], Value::Null);
    }
    assert_eq!(unknown.message(), wrong.message());
    assert!(!wrong.json.to_string().contains("guess"));
    world.end().await;
}

#[tokio::test]
async fn a_user_is_named_by_trusted_apps_only() {
    let world = World::new().await;
    let path = format!("{ESB}/get_proc_status");

    let nobody = world.post_as_is(&path, &json!({"bk_app_code": APP, "bk_app_secret": SECRET})).await;
    let named = world.post_as_is(&path, &credentials("stranger", SECRET)).await;
    let token = json!({"bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_token": "t"});
    let token = world.post_as_is(&path, &token).await;

    assert_eq!(nobody.code(), 1_306_401);
    for answer in [named, token] {
        assert_eq!(answer.code(), 1_306_000);
        assert_eq!(
            answer.message(),
            "User authentication failed, please provide a valid user identity, such as bk_token, bk_username"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn the_gateway_refuses_with_its_own_status_body_and_headers() {
    let world = World::new().await;
    let path = format!("{GATEWAY}/get_proc_status_v2");

    let app = world.post_as_is(&path, &credentials(APP, "guess")).await;
    let user = world.post_as_is(&path, &json!({"bk_app_code": APP, "bk_app_secret": SECRET})).await;
    let header = with_header(&world, &path, "[", &json!({})).await;

    assert_eq!((app.status, app.code()), (StatusCode::UNAUTHORIZED, 1_640_101));
    assert_eq!(app.json["code_name"], "APP_VERIFY_FAILED");
    assert_eq!(app.json["data"], Value::Null);
    assert_eq!(app.headers["X-Bkapi-Error-Code"], "1640101");
    assert!(app.headers["X-Bkapi-Error-Message"].to_str().unwrap().starts_with("App authentication failed"));
    assert_eq!(app.headers["X-Bkapi-Request-Id"].len(), 32);
    assert_eq!((user.status, user.code()), (StatusCode::UNAUTHORIZED, 1_640_102));
    assert_eq!((header.status, header.code()), (StatusCode::BAD_REQUEST, 1_640_001));
    world.end().await;
}

#[tokio::test]
async fn a_trusted_app_names_nobody_who_looks_like_somebody_else() {
    let world = World::new().await;
    let long = "x".repeat(129);
    for user in ["\u{430}dmin", "admin\u{200B}", " admin", "ad\tmin", long.as_str()] {
        let body = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": user });
        let answer = world.post_as_is(&format!("{ESB}/get_agent_status"), &body).await;
        assert_eq!(answer.code(), 1_306_000, "{user:?}: {}", answer.json);
        assert!(answer.message().starts_with("the name of the user must not"), "{user:?}: {}", answer.json);
    }
    for user in ["admin", "张三", "ana.b@example.com"] {
        let mut body = on_host("m", "10.0.0.1");
        body["bk_app_code"] = json!(APP);
        body["bk_app_secret"] = json!(SECRET);
        body["bk_username"] = json!(user);
        world.post_as_is(&format!("{ESB}/get_agent_status"), &body).await.data();
    }
    world.end().await;
}

#[tokio::test]
async fn a_mistyped_user_token_is_told_as_one() {
    let world = World::new().await;
    let request = Request::get("/api/v1/whoami").header("Authorization", "Bearer tp_1_hush");

    let answer = world.send(request.body(Body::empty()).unwrap()).await;

    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let message = answer.json["error"]["message"].as_str().unwrap();
    assert!(message.contains("is not a user token") && !message.contains("hush"), "{message}");
    world.end().await;
}

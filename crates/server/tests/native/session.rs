//! Console sessions: signing in and out, what a cookie permits, and when it ends.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode, header};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use proctor_store::TokenKind;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::World;

const PASSWORD: &str = "correct horse battery";

/// What a browser keeps of a sign-in.
struct Browser {
    cookie: String,
    csrf: String,
}

impl Browser {
    async fn call(&self, world: &World, method: Method, path: &str, csrf: Option<&str>) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method).uri(path).header("cookie", &self.cookie);
        if let Some(csrf) = csrf {
            request = request.header("x-proctor-csrf", csrf);
        }
        answer(world, request.body(Body::empty()).unwrap()).await
    }

    async fn session(&self, world: &World) -> (StatusCode, Value) {
        self.call(world, Method::GET, "/api/v1/session", None).await
    }

    async fn is_signed_in(&self, world: &World) -> bool {
        self.session(world).await.0 == StatusCode::OK
    }
}

async fn answer(world: &World, request: Request<Body>) -> (StatusCode, Value) {
    let response = world.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn attempt(body: &Value) -> Request<Body> {
    let request = Request::post("/api/v1/session").header(header::CONTENT_TYPE, "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

/// As if it came from this address.
fn attempt_from(address: &str, body: &Value) -> Request<Body> {
    let mut request = attempt(body);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address.parse().unwrap(), 4711)));
    request
}

async fn refused(world: &World, body: Value) -> (StatusCode, Value) {
    let (status, answer) = answer(world, attempt(&body)).await;
    let code = answer["error"]["code"].clone();
    let codes = [
        (StatusCode::BAD_REQUEST, "invalid_argument"),
        (StatusCode::UNAUTHORIZED, "unauthenticated"),
        (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
    ];
    assert!(codes.iter().any(|known| (known.0, json!(known.1)) == (status, code.clone())), "{status}: {answer}");
    (status, code)
}

async fn sign_in(world: &World, body: Value) -> Browser {
    let response = world.router.clone().oneshot(attempt(&body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict;"), "{cookie}");
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let session: Value = serde_json::from_slice(&body).unwrap();
    Browser { cookie: cookie.split(';').next().unwrap().to_owned(), csrf: session["csrf"].as_str().unwrap().to_owned() }
}

/// User `ana`, an operator; returns her token and its id.
async fn ana(world: &World) -> (String, String) {
    world.post("/users", json!({ "name": "ana" })).await;
    let binding = json!({ "role": "operator", "subject": "user:ana", "scope": "everything" });
    world.post("/bindings", binding).await;
    let (_, token) = world.post("/users/ana/tokens", json!({})).await;
    (token["token"].as_str().unwrap().to_owned(), token["id"].as_str().unwrap().to_owned())
}

async fn set_password(world: &World, password: Value) -> StatusCode {
    let body = Body::from(json!({ "password": password }).to_string());
    let who = crate::support::credentials("boss", &world.secret);
    let request = Request::put("/api/v1/users/ana/password").header("X-Bkapi-Authorization", who).body(body).unwrap();
    answer(world, request).await.0
}

async fn link(world: &World) -> String {
    let (status, link) = world.post("/users/ana/sign-in-link", json!({})).await;
    assert_eq!(status, StatusCode::CREATED);
    link["path"].as_str().unwrap().strip_prefix("/sign-in#link=").unwrap().to_owned()
}

#[tokio::test]
async fn a_token_a_password_and_a_link_each_open_a_session_of_their_user() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    assert_eq!(set_password(&world, json!(PASSWORD)).await, StatusCode::NO_CONTENT);
    let code = link(&world).await;

    let by_token = sign_in(&world, json!({ "token": token })).await;
    let by_password = sign_in(&world, json!({ "user": "ana", "password": PASSWORD })).await;
    let by_link = sign_in(&world, json!({ "link": code })).await;

    for browser in [&by_token, &by_password, &by_link] {
        let (status, session) = browser.session(&world).await;
        assert_eq!((status, &session["user"]), (StatusCode::OK, &json!("ana")));
        assert_eq!(session["csrf"], json!(browser.csrf));
        let classes: Vec<&str> =
            session["allowed"].as_array().unwrap().iter().map(|one| one["class"].as_str().unwrap()).collect();
        assert_eq!(classes, ["read", "operate"]);
    }
    assert_eq!(refused(&world, json!({ "link": code })).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn sign_ins_are_audited_with_how_and_without_secrets() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;

    let browser = sign_in(&world, json!({ "token": token })).await;
    browser.call(&world, Method::DELETE, "/api/v1/session", Some(&browser.csrf)).await;

    let audit = world.got("/audit?limit=1000").await;
    let text = audit.to_string();
    let deeds: Vec<(&str, &str)> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["user"] == json!("ana") && entry["phase"] == json!("begun"))
        .map(|entry| (entry["action"].as_str().unwrap(), entry["targets"][0].as_str().unwrap()))
        .collect();
    assert_eq!(deeds.iter().map(|(action, _)| *action).collect::<Vec<_>>(), ["sign_in", "sign_out"], "{text}");
    assert!(deeds[0].1.ends_with(" of user ana, by token"), "{deeds:?}");
    assert!(!text.contains(&token) && !text.contains(&browser.csrf));
}

#[tokio::test]
async fn what_is_not_good_opens_nothing_and_says_no_more_than_that() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    set_password(&world, json!(PASSWORD)).await;
    let unauthenticated = (StatusCode::UNAUTHORIZED, json!("unauthenticated"));
    let invalid = (StatusCode::BAD_REQUEST, json!("invalid_argument"));

    let wrong = refused(&world, json!({ "user": "ana", "password": "wrong horse battery" })).await;
    let unknown = refused(&world, json!({ "user": "nobody", "password": PASSWORD })).await;
    let token_of_another_kind = refused(&world, json!({ "token": "pt_1_2" })).await;
    let both = refused(&world, json!({ "token": token, "link": "x" })).await;

    assert_eq!(
        (wrong, unknown, token_of_another_kind),
        (unauthenticated.clone(), unauthenticated.clone(), unauthenticated)
    );
    assert_eq!(both, invalid);
}

#[tokio::test]
async fn a_form_of_another_site_cannot_sign_anybody_in() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;

    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request = Request::post("/api/v1/session").header(header::CONTENT_TYPE, kind);
        let (status, _) =
            answer(&world, request.body(Body::from(json!({ "token": token }).to_string())).unwrap()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{kind}");
    }
}

#[tokio::test]
async fn a_sign_in_is_small_whoever_sends_it() {
    let world = World::new().await;

    let long_user = refused(&world, json!({ "user": "ä".repeat(65), "password": PASSWORD })).await;
    let user = refused(&world, json!({ "user": "ä".repeat(64), "password": PASSWORD })).await;
    let large = refused(&world, json!({ "user": "ana", "password": "x".repeat(8 * 1024) })).await;

    assert_eq!(long_user, (StatusCode::BAD_REQUEST, json!("invalid_argument")));
    assert_eq!(user, (StatusCode::UNAUTHORIZED, json!("unauthenticated")));
    assert_eq!(large, (StatusCode::PAYLOAD_TOO_LARGE, json!("body_too_large")));
}

#[tokio::test]
async fn the_answer_with_the_csrf_token_is_not_kept_on_the_way() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    let browser = sign_in(&world, json!({ "token": token })).await;

    let request = Request::get("/api/v1/session").header("cookie", &browser.cookie).body(Body::empty()).unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();

    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
}

#[tokio::test]
async fn guessing_has_a_rate() {
    let world = World::new().await;

    let first = refused(&world, json!({ "link": "guess" })).await.0;
    let mut later = first;
    // Far more than the rate, so that a slow machine sees the limit too.
    for _ in 0..1000 {
        later = refused(&world, json!({ "link": "guess" })).await.0;
        if later != StatusCode::UNAUTHORIZED {
            break;
        }
    }

    assert_eq!((first, later), (StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS));
}

#[tokio::test]
async fn a_change_needs_the_csrf_token_and_a_look_does_not() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    let browser = sign_in(&world, json!({ "token": token })).await;
    let other = sign_in(&world, json!({ "token": token })).await;

    let look = browser.call(&world, Method::GET, "/api/v1/whoami", None).await.0;
    let without = browser.call(&world, Method::POST, "/api/v1/operations", None).await;
    let of_another = browser.call(&world, Method::POST, "/api/v1/operations", Some(&other.csrf)).await;
    let with = browser.call(&world, Method::POST, "/api/v1/operations", Some(&browser.csrf)).await;

    assert_eq!(look, StatusCode::OK);
    for forged in [&without, &of_another] {
        assert_eq!((forged.0, &forged.1["error"]["code"]), (StatusCode::FORBIDDEN, &json!("permission_denied")));
    }
    assert_eq!(with.1["error"]["code"], json!("invalid_argument"), "the call itself is looked at: {with:?}");
}

#[tokio::test]
async fn a_cookie_is_good_for_the_native_api_alone_and_its_token_only_in_the_cookie() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    let browser = sign_in(&world, json!({ "token": token })).await;
    let text = browser.cookie.strip_prefix("proctor_session=").unwrap();

    let compatible =
        browser.call(&world, Method::GET, "/api/c/compapi/v2/gse/get_proc_operate_result/?task_id=1", None).await;
    let bearer = Request::get("/api/v1/whoami").header("authorization", format!("Bearer {text}"));
    let bearer = answer(&world, bearer.body(Body::empty()).unwrap()).await;
    let again = refused(&world, json!({ "token": text })).await;
    let call_token = Request::get("/api/v1/whoami").header("cookie", format!("proctor_session={token}"));
    let call_token = answer(&world, call_token.body(Body::empty()).unwrap()).await;

    let (status, refused) = compatible;
    let expected = (StatusCode::OK, &json!(1_306_000), &json!("APP Code [bk_app_code] cannot be empty"));
    assert_eq!((status, &refused["code"], &refused["message"]), expected, "{refused}");
    assert_eq!(
        (bearer.0, again.0, call_token.0),
        (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED)
    );
}

#[tokio::test]
async fn a_session_ends_when_it_is_closed_and_with_its_token_its_user_and_a_new_password() {
    let world = World::new().await;
    let (token, id) = ana(&world).await;
    let open = || sign_in(&world, json!({ "token": token }));

    let closed = open().await;
    let (status, _) = closed.call(&world, Method::DELETE, "/api/v1/session", Some(&closed.csrf)).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(!closed.is_signed_in(&world).await);

    let before_password = open().await;
    assert_eq!(set_password(&world, json!(PASSWORD)).await, StatusCode::NO_CONTENT);
    assert!(!before_password.is_signed_in(&world).await);

    let of_disabled = open().await;
    world.put("/users/ana", json!({ "disabled": true })).await;
    assert!(!of_disabled.is_signed_in(&world).await);
    world.put("/users/ana", json!({ "disabled": false })).await;
    assert!(!of_disabled.is_signed_in(&world).await, "who is enabled again signs in again");

    let of_token = open().await;
    let of_password = sign_in(&world, json!({ "user": "ana", "password": PASSWORD })).await;
    world.delete(&format!("/users/ana/tokens/{id}")).await;
    assert!(!of_token.is_signed_in(&world).await);
    assert!(of_password.is_signed_in(&world).await);
}

#[tokio::test]
async fn a_link_ends_with_its_user_and_a_new_password() {
    let world = World::new().await;
    ana(&world).await;

    let before_password = link(&world).await;
    set_password(&world, json!(PASSWORD)).await;
    let before_disabling = link(&world).await;
    world.put("/users/ana", json!({ "disabled": true })).await;
    world.put("/users/ana", json!({ "disabled": false })).await;
    let before_removal = link(&world).await;
    world.delete("/users/ana").await;
    ana(&world).await;

    for code in [before_password, before_disabling, before_removal] {
        assert_eq!(refused(&world, json!({ "link": code })).await.0, StatusCode::UNAUTHORIZED);
    }
    sign_in(&world, json!({ "link": link(&world).await })).await;
}

/// More than are hashed at once, so that some have read the old hash and wait when the first is through.
#[tokio::test]
async fn a_sign_in_that_waits_while_the_password_changes_opens_no_session() {
    let world = World::new().await;
    ana(&world).await;
    set_password(&world, json!(PASSWORD)).await;
    let body = json!({ "user": "ana", "password": PASSWORD });
    let mut attempts: FuturesUnordered<_> = (0..6).map(|_| world.router.clone().oneshot(attempt(&body))).collect();
    let first = attempts.next().await.unwrap().unwrap();
    assert_eq!(first.status(), StatusCode::OK);

    world.store.set_user_password("ana", Some("another".to_owned()), None, 7).await.unwrap().unwrap();

    let late: Vec<StatusCode> = attempts.map(|response| response.unwrap().status()).collect().await;
    assert!(late.contains(&StatusCode::UNAUTHORIZED), "{late:?}");
    let tokens = world.store.user_tokens(Some("ana")).await.unwrap();
    assert_eq!(tokens.iter().filter(|token| token.kind != TokenKind::Call).count(), 0, "{late:?}");
}

#[tokio::test]
async fn failing_sign_ins_from_one_address_do_not_lock_a_user_out_elsewhere() {
    let world = World::new().await;
    ana(&world).await;
    set_password(&world, json!(PASSWORD)).await;
    let (guess, right) =
        (json!({ "user": "ana", "password": "a wrong password" }), json!({ "user": "ana", "password": PASSWORD }));
    let guesses = (0..20).map(|_| world.router.clone().oneshot(attempt_from("192.0.2.1", &guess)));

    let (guesses, answer) = tokio::join!(
        futures::future::join_all(guesses),
        world.router.clone().oneshot(attempt_from("192.0.2.2", &right))
    );

    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    let statuses: Vec<StatusCode> = guesses.into_iter().map(|guess| guess.unwrap().status()).collect();
    let is_refused = |status: &StatusCode| [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS].contains(status);
    assert!(statuses.iter().all(is_refused) && statuses.contains(&StatusCode::UNAUTHORIZED), "{statuses:?}");
}

#[tokio::test]
async fn a_user_opens_a_bounded_number_of_sessions_in_a_while() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    let body = json!({ "token": token });
    let mut statuses = Vec::new();
    for last in 1..=40 {
        let request = attempt_from(&format!("192.0.2.{last}"), &body);
        statuses.push(world.router.clone().oneshot(request).await.unwrap().status());
    }

    assert_eq!(statuses[0], StatusCode::OK);
    assert!(statuses.contains(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
}

#[tokio::test]
async fn of_two_changes_of_the_same_password_one_is_made() {
    let world = World::new().await;
    let (token, _) = ana(&world).await;
    set_password(&world, json!(PASSWORD)).await;
    let change = |new: &str| {
        let body = Body::from(json!({ "current": PASSWORD, "password": new }).to_string());
        let request = Request::put("/api/v1/session/password").header("Authorization", format!("Bearer {token}"));
        answer(&world, request.body(body).unwrap())
    };

    let (one, other) = tokio::join!(change("the first new password"), change("the second new password"));

    let mut statuses = [one.0, other.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::NO_CONTENT, StatusCode::CONFLICT], "{one:?} {other:?}");
}

#[tokio::test]
async fn a_user_changes_the_own_password_with_the_present_one() {
    let world = World::new().await;
    ana(&world).await;
    set_password(&world, json!(PASSWORD)).await;
    let browser = sign_in(&world, json!({ "user": "ana", "password": PASSWORD })).await;
    let change = async |current: &str, password: &str| {
        let request = Request::put("/api/v1/session/password")
            .header("cookie", &browser.cookie)
            .header("x-proctor-csrf", &browser.csrf)
            .body(Body::from(json!({ "current": current, "password": password }).to_string()));
        answer(&world, request.unwrap()).await.0
    };

    assert_eq!(change("wrong horse battery", "another horse battery").await, StatusCode::BAD_REQUEST);
    assert_eq!(change(PASSWORD, "short").await, StatusCode::BAD_REQUEST);
    assert!(browser.is_signed_in(&world).await);
    assert_eq!(change(PASSWORD, "another horse battery").await, StatusCode::NO_CONTENT);

    assert!(!browser.is_signed_in(&world).await);
    assert_eq!(refused(&world, json!({ "user": "ana", "password": PASSWORD })).await.0, StatusCode::UNAUTHORIZED);
    sign_in(&world, json!({ "user": "ana", "password": "another horse battery" })).await;
}

//! Ways to prove who calls: keyed hashes, tokens of users, signatures, the word of a gateway.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proctor_pki::hash_secret;
use proctor_runtime::clock;
use proctor_server::admin::{self, AppOptions};
use proctor_server::api::{self, ApiState, Settings};
use proctor_store::{App, Store, User};
use serde_json::{Value, json};

use crate::limits::{held_call, with_ordinary_apps};
use crate::support::{APP, Answer, ESB, GATEWAY, JOB, SECRET, World, on_host, registered};

const PATH: &str = "/api/c/compapi/v2/gse/get_proc_status/";

async fn with_headers(world: &World, path: &str, headers: &[(&'static str, &str)]) -> Answer {
    let mut request = Request::post(path).body(Body::from(on_host("a", "10.0.0.1").to_string())).unwrap();
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
    *request.headers_mut() = headers.collect::<HeaderMap>();
    world.send(request).await
}

/// The app and the user that a request with these headers comes from.
async fn whoami(world: &World, headers: &[(&'static str, &str)]) -> (String, String) {
    let mut request = Request::get("/api/v1/whoami").body(Body::empty()).unwrap();
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
    *request.headers_mut() = headers.collect::<HeaderMap>();
    let answer = world.send(request).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.json);
    let text = |field: &str| answer.json[field].as_str().unwrap_or_default().to_owned();
    (text("app"), text("user"))
}

async fn as_app(world: &World, secret: &str) -> Answer {
    let header = json!({"bk_app_code": APP, "bk_app_secret": secret, "bk_username": "admin"}).to_string();
    with_headers(world, PATH, &[("x-bkapi-authorization", &header)]).await
}

/// Asks until the code is that one: what was verified is believed for a short time.
async fn becomes(world: &World, code: i64, header: &str) {
    let wait = async {
        while with_headers(world, PATH, &[("x-bkapi-authorization", header)]).await.code() != code {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("a change takes effect");
}

fn store(world: &World) -> Arc<dyn Store> {
    Arc::clone(&world.store)
}

#[tokio::test]
async fn a_plain_hash_of_an_older_version_is_accepted_and_replaced_by_a_keyed_one() {
    let world = World::new().await;
    let now = world.store.app(APP).await.unwrap().unwrap();
    world.store.put_app(App { secret_hash: hash_secret(SECRET), ..now }).await.unwrap();

    as_app(&world, SECRET).await.data();
    as_app(&world, SECRET).await.data();
    let wrong = as_app(&world, "guess").await;

    let kept = world.store.app(APP).await.unwrap().unwrap();
    assert!(kept.secret_hash.starts_with("hmac-sha256:"), "{}", kept.secret_hash);
    assert!(kept.trusted);
    assert_eq!(wrong.code(), 1_306_000);
    world.end().await;
}

#[tokio::test]
async fn an_app_that_is_deleted_or_changed_is_out_within_seconds() {
    let world = World::new().await;
    let header =
        |secret: &str| json!({"bk_app_code": APP, "bk_app_secret": secret, "bk_username": "admin"}).to_string();
    as_app(&world, SECRET).await.data();

    let (_, secret) = admin::rotate_app(&store(&world), &APP.parse().unwrap(), None).await.unwrap().unwrap();
    becomes(&world, 0, &header(&secret)).await;
    becomes(&world, 1_306_000, &header(SECRET)).await;
    world.store.delete_app(APP).await.unwrap();
    becomes(&world, 1_306_000, &header(&secret)).await;

    world.end().await;
}

async fn user_with_token(world: &World, ttl: Option<Duration>) -> String {
    let _ = world.store.create_user(User { name: "zhang".into(), created_at: 0, disabled: false }).await.unwrap();
    let (text, token) = admin::create_user_token(&store(world), "zhang", "laptop", ttl).await.unwrap().unwrap();
    assert!(token.secret_hash.starts_with("hmac-sha256:"));
    text.to_string()
}

#[tokio::test]
async fn the_token_of_a_user_proves_the_user_wherever_it_is() {
    let world = World::new().await;
    let token = user_with_token(&world, None).await;
    let bearer = format!("Bearer {token}");
    let beside_app = json!({"bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_token": token}).to_string();

    for field in ["bk_token", "access_token", "bk_access_token"] {
        let header = json!({field: token}).to_string();
        let headers = [("x-bkapi-authorization", header.as_str())];
        assert_eq!(whoami(&world, &headers).await, (String::new(), "zhang".to_owned()), "{field}");
        assert_eq!(with_headers(&world, PATH, &headers).await.code(), 1_306_403, "{field}: known, but not bound");
    }
    for (headers, app) in
        [([("authorization", bearer.as_str())], ""), ([("x-bkapi-authorization", beside_app.as_str())], "stranger")]
    {
        assert_eq!(whoami(&world, &headers).await, (app.to_owned(), "zhang".to_owned()));
        assert_eq!(with_headers(&world, PATH, &headers).await.code(), 1_306_403, "known, but not bound");
    }
    world.end().await;
}

#[tokio::test]
async fn a_token_that_is_wrong_over_or_taken_back_proves_nothing() {
    let world = World::new().await;
    let token = user_with_token(&world, None).await;
    let over = user_with_token(&world, Some(Duration::ZERO)).await;
    let wrong = format!("{token}x");

    for bad in [over.as_str(), &wrong, "pt_1_x", "pt_", "a-token-of-another-service"] {
        let answer = with_headers(&world, PATH, &[("authorization", &format!("Bearer {bad}"))]).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::OK, 1_306_000), "{bad}");
        assert!(!answer.json.to_string().contains(bad));
    }
    let path = format!("{GATEWAY}/get_proc_status_v2");
    let gateway = with_headers(&world, &path, &[("authorization", "Bearer pt_1_x")]).await;
    assert_eq!((gateway.status, gateway.code()), (StatusCode::UNAUTHORIZED, 1_640_102));
    world.store.disable_user("zhang", true).await.unwrap();
    becomes(&world, 1_306_000, &json!({"access_token": token}).to_string()).await;
    world.end().await;
}

#[tokio::test]
async fn an_app_without_trust_may_call_for_itself_but_for_nobody_else() {
    let world = World::new().await;
    let header =
        |user: &str| json!({"bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": user}).to_string();

    let itself = with_headers(&world, PATH, &[("x-bkapi-authorization", &header("stranger"))]).await;
    let other = with_headers(&world, PATH, &[("x-bkapi-authorization", &header("admin"))]).await;

    assert_eq!(itself.code(), 1_306_403, "known, but not bound: {}", itself.json);
    let who = whoami(&world, &[("x-bkapi-authorization", &header("stranger"))]).await;
    assert_eq!(who, ("stranger".to_owned(), "stranger".to_owned()));
    assert_eq!(other.code(), 1_306_000);
    world.end().await;
}

/// A request as the ESB's SDK signs it: names in the body, the rest in the query.
fn signed(secret: &str, timestamp: u64, nonce: u64, body: &Value) -> Request<Body> {
    let body = body.to_string();
    let text = format!("POST{PATH}?bk_nonce={nonce}&bk_timestamp={timestamp}&data={body}");
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let uri = format!("{PATH}?bk_timestamp={timestamp}&bk_nonce={nonce}&bk_signature={signature}");
    Request::builder().method(Method::POST).uri(uri).body(Body::from(body)).unwrap()
}

/// Creates the trusted app `signer`, which signs its calls; returns its secret.
async fn signer(world: &World) -> String {
    let options = AppOptions { trusted: true, signing: true };
    admin::create_app(&store(world), &"signer".parse().unwrap(), options, Vec::new()).await.unwrap().unwrap()
}

/// A call of the app `signer`.
fn signed_body() -> Value {
    let mut body = on_host("a", "10.0.0.1");
    body["bk_app_code"] = json!("signer");
    body["bk_username"] = json!("admin");
    body
}

fn now() -> u64 {
    u64::try_from(clock::unix_millis()).unwrap() / 1000
}

#[tokio::test]
async fn a_signed_request_beyond_the_rate_leaves_nothing_and_may_be_sent_again() {
    let world = World::with(Settings { rate_limit: Some("1/s".parse().unwrap()), ..Settings::default() }).await;
    let (secret, body) = (signer(&world).await, signed_body());
    let (at, mut nonce) = (now(), 1);
    while world.send(signed(&secret, at, nonce, &body)).await.code() == 0 {
        nonce += 1;
    }

    let again = async {
        loop {
            let answer = world.send(signed(&secret, at, nonce, &body)).await;
            if answer.code() != 1_306_429 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(60), again).await.expect("it is let through");
    let replayed = world.send(signed(&secret, at, nonce, &body)).await;

    again.data();
    assert!(replayed.message().contains("bk_nonce was already used"), "{}", replayed.json);
    world.end().await;
}

#[tokio::test]
async fn a_signed_request_that_finds_no_free_call_may_be_sent_again() {
    let concurrency_limit = std::num::NonZeroU32::MIN;
    let world = World::with(Settings { concurrency_limit, ..Settings::default() }).await;
    let secret = signer(&world).await;
    // No administrator, who would get through.
    for binding in world.store.bindings().await.unwrap() {
        world.store.delete_binding(binding.id).await.unwrap();
    }
    world.bind("app:signer", "viewer", "everything").await;
    with_ordinary_apps(&world).await;
    let body = signed_body();
    assert_eq!(world.send(signed(&secret, now(), 1, &body)).await.code(), 0);
    let held = held_call(&world, "ordinary", "other").await;

    let at = now();
    let put_off = world.send(signed(&secret, at, 2, &body)).await;
    held.await;
    let again = world.send(signed(&secret, at, 2, &body)).await;
    let replayed = world.send(signed(&secret, at, 2, &body)).await;

    assert_eq!(put_off.code(), 1_306_429, "{}", put_off.json);
    again.data();
    assert!(replayed.message().contains("bk_nonce was already used"), "{}", replayed.json);
    world.end().await;
}

#[tokio::test]
async fn a_signature_counts_once_and_for_five_minutes() {
    let world = World::new().await;
    let (secret, body) = (signer(&world).await, signed_body());

    let good = world.send(signed(&secret, now(), 1, &body)).await;
    let replayed = world.send(signed(&secret, now(), 1, &body)).await;
    let next = world.send(signed(&secret, now(), 2, &body)).await;
    let old = world.send(signed(&secret, now() - 302, 3, &body)).await;
    let wrong = world.send(signed("guess", now(), 4, &body)).await;
    let mut changed = signed(&secret, now(), 5, &body);
    *changed.body_mut() = Body::from(body.to_string().replace("10.0.0.1", "10.0.0.2"));
    let changed = world.send(changed).await;
    let nonce = world.send(signed(&secret, now(), 0, &body)).await;

    for accepted in [&good, &next] {
        assert_eq!(accepted.code(), 0, "{}", accepted.json);
    }
    let refusals = [(&replayed, "bk_nonce"), (&old, "bk_timestamp"), (&wrong, "signature"), (&changed, "signature")];
    for (refused, word) in refusals {
        assert_eq!((refused.status, refused.code()), (StatusCode::OK, 1_306_000));
        assert!(refused.message().contains(word), "{}", refused.message());
    }
    assert_eq!((nonce.code(), nonce.message()), (1_306_406, "bk_nonce must be greater than 0"));
    world.end().await;
}

#[tokio::test]
async fn a_nonce_does_not_count_again_after_a_restart_of_the_server() {
    let mut world = World::new().await;
    let (secret, body) = (signer(&world).await, signed_body());
    let at = now();
    let first = world.send(signed(&secret, at, 7, &body)).await;

    // As after a restart, the memory is empty.
    world.router = api::router(ApiState::new(world.control.clone(), None, Settings::default()));
    let replayed = world.send(signed(&secret, at, 7, &body)).await;
    let new = world.send(signed(&secret, at, 8, &body)).await;

    assert_eq!((first.code(), new.code()), (0, 0), "{} {}", first.json, new.json);
    assert_eq!(
        (replayed.code(), replayed.message()),
        (1_306_000, "bk_nonce was already used: every request needs a new one")
    );
    world.end().await;
}

/// Leaves room for little more than a few nonces.
async fn fill(world: &World) {
    for length in [50_000, 3000] {
        let mut process = registered("a", "10.0.0.1");
        for number in 0.. {
            process["meta"]["name"] = json!(format!("process-{length}-{number}"));
            process["spec"]["control"]["start_cmd"] = json!(format!("{}{number}", "x".repeat(length)));
            if world.post(&format!("{ESB}/register_proc_info"), process.clone()).await.code() != 0 {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_nonce_that_the_store_could_not_take_is_not_told_to_be_used() {
    let world = World::bounded(100).await;
    let (secret, body) = (signer(&world).await, signed_body());
    fill(&world).await;
    let at = now();
    let refused = async {
        for nonce in 1.. {
            let answer = world.send(signed(&secret, at, nonce, &body)).await;
            if answer.code() != 0 {
                return (nonce, answer);
            }
        }
        unreachable!("nonces do not run out")
    };
    let (nonce, full) = tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the store is full");

    let again = world.send(signed(&secret, at, nonce, &body)).await;

    assert_eq!((full.code(), again.code()), (1_306_201, 1_306_201), "{} {}", full.json, again.json);
    world.end().await;
}

#[tokio::test]
async fn an_app_that_was_not_made_for_signatures_cannot_sign() {
    let world = World::new().await;
    let mut body = on_host("a", "10.0.0.1");
    body["bk_app_code"] = json!(APP);
    body["bk_username"] = json!("admin");

    let answer = world.send(signed(SECRET, now(), 1, &body)).await;

    assert_eq!(answer.code(), 1_306_000);
    assert!(answer.message().contains("--signing"), "{}", answer.message());
    world.end().await;
}

/// A key and a token until the year 2100 for app bk_gsekit and user admin, made once with Python's
/// `cryptography`.
const GATEWAY_KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEApNb14e4x5eQSSJ9tL4So
sNIm4tjXyiZurLti/gKEbee4C9GZo4/QLWF4E0bAWl5o/SRIUSROJfkVKrIcIjrt
KdUYXb19JjLBePPCpiVsKAJZn5+g5JKUZ/NEO5TibEsmRRoMLwutXqr16eZg36GI
MvkO32i9ydIkkPiM/YU+QPaMTsesbBFzssu8orYBmRG3bPtRqBltlZjobo96QSdn
rt7smtoaOZWNUyAu/ceFOcbJCuP7nYOZQClKdTmJjdBYgSCmXMUFBLqDRrhnoXId
lBn5QyFE+7uC0LC1DOEupMXuelW3b6zdOsckAl9b7nHgXDBBkOLpUW+xZZMtw/c8
XQIDAQAB
-----END PUBLIC KEY-----
";
const GATEWAY_TOKEN: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzUxMiIsICJraWQiOiAiYmstZ3NlIn0.eyJleHAiOiA0MTAyNDQ0ODAwLCAiYXBwIjog\
    eyJhcHBfY29kZSI6ICJia19nc2VraXQiLCAidmVyaWZpZWQiOiB0cnVlfSwgInVzZXIiOiB7InVzZXJuYW1lIjogImFkbWluIiwg\
    InZlcmlmaWVkIjogdHJ1ZX19.GeeOxSJkXi5XKSXZVXGbOkwshgzr5C5ljITZOhSvL9maVXDW5kBakSotooA7GmEB9ZCJxkSuq-e\
    QdSXlwbTIaOgUf6TzeYlWt7VyHwBZfBvnzj2jd-TjV67nQtls3VRSFVzto7cvYZOf-AOVXMQTvKM6OkusKrysX0y3TclPfpGpJf8\
    Hs9EmcS_EoAM2D4TFhtwhImK7AWji4gZwgwqoPH9hm5B2HSvz3l6Dg_DerRaye88TVQhsDJgwPfhC43VMEm91b7XgsqSqU2VLdT4\
    cTYbnP-bk01puPMknCQDfvQ5ePSi6LAVmBCamQoyq3rYprNVX5QjgO41rtKvpVNzasw";

#[tokio::test]
async fn the_word_of_the_gateway_whose_key_is_configured_is_believed() {
    let settings = Settings { gateway_key: Some(GATEWAY_KEY.parse().unwrap()), ..Settings::default() };
    let world = World::with(settings).await;
    let path = format!("{GATEWAY}/get_proc_status_v2");
    let damaged = format!("{GATEWAY_TOKEN}x");

    let good = with_headers(&world, &path, &[("x-bkapi-jwt", GATEWAY_TOKEN)]).await;
    let bad = with_headers(&world, &path, &[("x-bkapi-jwt", &damaged)]).await;
    let esb = with_headers(&world, &format!("{ESB}/get_proc_status"), &[("x-bkapi-jwt", &damaged)]).await;
    let job = with_headers(&world, &format!("{JOB}/get_proc_result"), &[("x-bkapi-jwt", &damaged)]).await;

    assert_eq!((good.status, good.code()), (StatusCode::FORBIDDEN, 1_640_301), "known, but not bound: {}", good.json);
    let who = whoami(&world, &[("x-bkapi-jwt", GATEWAY_TOKEN)]).await;
    assert_eq!(who, ("bk_gsekit".to_owned(), "admin".to_owned()));
    assert_eq!((bad.status, bad.code()), (StatusCode::BAD_REQUEST, 1_640_004));
    assert_eq!(bad.json["code_name"], "JWT_VERIFY_FAILED");
    assert_eq!((esb.status, esb.code()), (StatusCode::OK, 1_306_000));
    assert_eq!((job.status, job.code()), (StatusCode::OK, 1_306_000));
    world.end().await;
}

#[tokio::test]
async fn without_a_configured_key_no_gateway_is_believed() {
    let world = World::new().await;

    let path = format!("{GATEWAY}/get_proc_status_v2");
    let answer = with_headers(&world, &path, &[("x-bkapi-jwt", GATEWAY_TOKEN)]).await;

    assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, 1_640_004));
    assert!(answer.message().contains("--gateway-public-key"), "{}", answer.message());
    world.end().await;
}

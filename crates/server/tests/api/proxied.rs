//! Callers behind a trusted proxy: the audit, `--procapi-from` and sign-in limits see them, not the proxy.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_server::api::{ProxyHeader, Settings, TrustedProxies};
use proctor_store::AuditQuery;
use serde_json::json;

use crate::support::{APP, ESB, SECRET, World, registered};

const PROXY: &str = "10.9.9.9";
const STRANGER: &str = "192.0.2.1";

async fn behind_proxy() -> World {
    let proxies = TrustedProxies { networks: PROXY.parse().unwrap(), ..TrustedProxies::default() };
    // A careless operator: the proxy itself is in the network of the ESB.
    let settings = Settings { proxies, procapi_from: "10.0.0.0/8".parse().unwrap(), ..Settings::default() };
    let world = World::with(settings).await;
    world.bind("app:bk_nodeman", "owner", "everything").await;
    world
}

fn register(forwarded_for: &str) -> Request<Body> {
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin"}).to_string();
    Request::post(format!("{ESB}/register_proc_info"))
        .header("X-Bkapi-Authorization", who)
        .header("X-Forwarded-For", forwarded_for)
        .header("Forwarded", "for=198.51.100.66")
        .body(Body::from(registered("a", "10.0.0.1").to_string()))
        .unwrap()
}

async fn remotes(world: &World) -> Vec<String> {
    let query = AuditQuery { limit: 1000, ..AuditQuery::default() };
    let entries = world.store.audit(&query).await.unwrap();
    let mut remotes: Vec<String> =
        entries.into_iter().filter_map(|entry| Some(entry.draft.remote?.to_string())).collect();
    remotes.dedup();
    remotes
}

#[tokio::test]
async fn the_audit_names_the_caller_and_what_the_caller_made_up_counts_nothing() {
    let world = behind_proxy().await;

    let answer = world.send_from(PROXY, register("10.1.2.3, 203.0.113.9")).await;

    assert_eq!(answer.status, StatusCode::OK, "{}", answer.json);
    assert_eq!(remotes(&world).await, ["203.0.113.9"]);
    world.end().await;
}

#[tokio::test]
async fn a_header_of_anyone_else_is_ignored() {
    let world = behind_proxy().await;

    world.send_from(STRANGER, register("203.0.113.9")).await;

    assert_eq!(remotes(&world).await, [STRANGER]);
    world.end().await;
}

fn esb(forwarded_for: &str) -> Request<Body> {
    Request::post("/procapi/v1/proc/procinfo")
        .header("Bk-App-Code", "bk_nodeman")
        .header("Bk-Username", "admin")
        .header("X-Forwarded-For", forwarded_for)
        .body(Body::from(registered("a", "10.0.0.1").to_string()))
        .unwrap()
}

#[tokio::test]
async fn names_without_a_secret_are_believed_from_the_esb_behind_the_proxy_alone() {
    let world = behind_proxy().await;

    let believed = world.send_from(PROXY, esb("203.0.113.9, 10.1.2.3")).await;
    assert_eq!(believed.data()["0:7:10.0.0.1:web:a"]["error_code"], 0);

    for forged in ["10.1.2.3, 203.0.113.9", "10.1.2.3, unknown", "10.1.2.3,"] {
        let refused = world.send_from(PROXY, esb(forged)).await;

        assert_eq!((refused.status, refused.code()), (StatusCode::OK, 1_306_000), "{forged}: {}", refused.json);
    }
    let mut unforwarded = esb("");
    unforwarded.headers_mut().remove("X-Forwarded-For");
    let refused = world.send_from(PROXY, unforwarded).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::OK, 1_306_000), "{}", refused.json);
    world.end().await;
}

/// An attempt that is counted and then refused before a password is looked at.
async fn sign_in(world: &World, header: &str, value: &str) -> StatusCode {
    let attempt = Request::post("/api/v1/session").header(header, value).body(Body::empty()).unwrap();
    world.send_from(PROXY, attempt).await.status
}

#[tokio::test]
async fn sign_ins_are_limited_by_caller_and_not_by_proxy() {
    for (proxy_header, header, forms) in [
        (ProxyHeader::XForwardedFor, "X-Forwarded-For", ["203.0.113.9", "203.0.113.10"]),
        (ProxyHeader::Forwarded, "Forwarded", ["for=203.0.113.9", "for=203.0.113.10"]),
    ] {
        let proxies = TrustedProxies { networks: PROXY.parse().unwrap(), header: proxy_header };
        let world = World::with(Settings { proxies, ..Settings::default() }).await;
        let [guesser, other] = forms;

        // However slow this machine is, as often as it takes.
        while sign_in(&world, header, guesser).await != StatusCode::TOO_MANY_REQUESTS {}

        assert_eq!(sign_in(&world, header, other).await, StatusCode::BAD_REQUEST, "{header}: the proxy was counted");
        world.end().await;
    }
}

//! `/metrics`: who may read it, whether it can be parsed, and whether `ops/` names only what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use proctor_server::api::Settings;
use serde_json::json;
use tower::ServiceExt;

use crate::support::{APP, ESB, SECRET, World, on_host};

/// Families of the exposition, by name: their type, and their samples by labels.
type Families = BTreeMap<String, (String, BTreeMap<String, f64>)>;

async fn scrape(world: &World, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let response = world.router.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = axum::body::to_bytes(response.into_body(), 1 << 24).await.unwrap();
    (status, headers, String::from_utf8(body.to_vec()).unwrap())
}

fn as_user(user: &str) -> Request<Body> {
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": user}).to_string();
    Request::get("/metrics").header("X-Bkapi-Authorization", who).body(Body::empty()).unwrap()
}

/// Refuses what Prometheus would: samples without a type, names and numbers that are none, a family in two places.
fn parsed(text: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split_once(' ').expect("a name and a text").0.to_owned();
            assert!(families.insert(current.clone(), Default::default()).is_none(), "{current} is there twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            families.get_mut(name).unwrap().0 = kind.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let name = series.split('{').next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'), "{line}");
        assert!(!series.contains('{') || series.ends_with('}'), "{line}");
        let (kind, samples) = families.get_mut(&current).unwrap();
        assert!(name == current || kind == "histogram" && name.starts_with(&current), "{line} in {current}");
        assert!(samples.insert(series.to_owned(), value).is_none(), "{series} is there twice");
    }
    families
}

fn sum(families: &Families, family: &str, labels: &[&str]) -> f64 {
    let samples = &families[family].1;
    samples.iter().filter(|(series, _)| labels.iter().all(|label| series.contains(label))).map(|(_, value)| value).sum()
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_everything_and_for_the_addresses_that_were_named() {
    let world = World::with(Settings { metrics_from: "10.5.0.0/16".parse().unwrap(), ..Settings::default() }).await;
    for binding in world.store.bindings().await.unwrap() {
        world.store.delete_binding(binding.id).await.unwrap();
    }
    world.bind("user:reader", "viewer", "everything").await;
    world.bind("user:guest", "viewer", "namespace:web").await;
    let plain = || Request::get("/metrics").body(Body::empty()).unwrap();
    let from = |address: &str| {
        let mut request = plain();
        let peer: std::net::SocketAddr = format!("{address}:1").parse().unwrap();
        request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        request
    };

    assert_eq!(scrape(&world, plain()).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(scrape(&world, from("10.6.0.1")).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(scrape(&world, as_user("guest")).await.0, StatusCode::FORBIDDEN);
    assert_eq!(scrape(&world, as_user("reader")).await.0, StatusCode::OK);
    let (status, headers, _) = scrape(&world, from("10.5.0.1")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    world.end().await;
}

#[tokio::test]
async fn calls_are_counted_by_route_status_and_what_their_envelope_says() {
    let world = World::new().await;
    let mut operate = on_host("a", "10.0.0.1");
    operate["op_type"] = json!(1);
    world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await;
    world.post(&format!("{ESB}/get_proc_status"), json!({"meta": 7})).await;
    let submitted = world.post(&format!("{ESB}/operate_proc"), operate).await;
    world.finished(&format!("{ESB}/get_proc_operate_result"), &submitted.data()["task_id"]).await;
    world.get("/no/such/path").await;

    let families = parsed(&scrape(&world, as_user("admin")).await.2);

    let status = format!("route=\"{ESB}/get_proc_status\"");
    let calls = "proctor_http_requests_total";
    assert_eq!(sum(&families, calls, &[&status, "status=\"200\"", "result=\"ok\""]), 1.0);
    assert_eq!(sum(&families, calls, &[&status]), 2.0, "{:?}", families[calls]);
    assert_eq!(sum(&families, calls, &["route=\"none\"", "status=\"404\""]), 1.0);
    assert_eq!(sum(&families, "proctor_tasks_total", &[]), 1.0);
    assert_eq!(sum(&families, "proctor_target_outcomes_total", &[]), 1.0);
    assert!(sum(&families, "proctor_store_operations_total", &[]) > 1.0);
    assert!(sum(&families, "proctor_store_bytes", &[]) > 4096.0);
    assert!(sum(&families, "process_resident_memory_bytes", &[]) > 1e6);
    let histogram = &families["proctor_http_request_duration_seconds"];
    let last = format!("proctor_http_request_duration_seconds_bucket{{method=\"POST\",{status},le=\"+Inf\"}}");
    let count = format!("proctor_http_request_duration_seconds_count{{method=\"POST\",{status}}}");
    assert_eq!((histogram.0.as_str(), histogram.1[&last], histogram.1[&count]), ("histogram", 2.0, 2.0));
    world.end().await;
}

#[tokio::test]
async fn a_request_has_one_id_in_its_answer_and_in_the_audit() {
    let world = World::new().await;
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin"}).to_string();
    let register = Request::post(format!("{ESB}/register_proc_info"))
        .header("X-Bkapi-Authorization", &who)
        .body(Body::from(crate::support::registered("a", "10.0.0.1").to_string()))
        .unwrap();

    let answer = world.send(register).await;
    let native = scrape(&world, Request::get("/api/v1/whoami").body(Body::empty()).unwrap()).await;

    let query = proctor_store::AuditQuery { limit: 10, ..proctor_store::AuditQuery::default() };
    let audited = world.store.audit(&query).await.unwrap();
    let id = answer.json["request_id"].as_str().unwrap();
    let mut of_app = audited.iter().filter(|entry| entry.draft.app == APP).peekable();
    assert!(of_app.peek().is_some() && of_app.all(|entry| entry.draft.request_id == id), "{id} {audited:?}");
    assert_eq!(answer.headers["x-bkapi-request-id"], id);
    assert_eq!(native.1["x-bkapi-request-id"].len(), 32);
    world.end().await;
}

#[tokio::test]
async fn usage_of_processes_is_shown_only_where_it_was_switched_on() {
    let switched_on = Settings { metrics_processes: true, ..Settings::default() };
    for (settings, expected) in [(Settings::default(), StatusCode::NOT_FOUND), (switched_on, StatusCode::OK)] {
        let world = World::with(settings).await;
        world.post(&format!("{ESB}/register_proc_info"), crate::support::registered("a", "10.0.0.1")).await;
        let mut own = as_user("admin");
        *own.uri_mut() = "/metrics/processes".parse().unwrap();
        let stranger = Request::get("/metrics/processes").body(Body::empty()).unwrap();

        let (status, _, text) = scrape(&world, own).await;

        assert_eq!(status, expected, "{text}");
        assert_eq!(scrape(&world, stranger).await.0, StatusCode::UNAUTHORIZED);
        if status == StatusCode::OK {
            assert_eq!(sum(&parsed(&text), "proctor_processes", &[]), 1.0, "{text}");
        }
        world.end().await;
    }
}

/// Words in the files that look like ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| word.starts_with("proctor_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

#[tokio::test]
async fn dashboard_and_alerts_name_only_metrics_that_there_are() {
    let world = World::new().await;
    let families = parsed(&scrape(&world, as_user("admin")).await.2);
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");

    for file in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
        let text = std::fs::read_to_string(ops.join(file)).unwrap();
        let names = named(&text);
        assert!(names.len() > 8, "{file}: {names:?}");
        for name in names {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_there = families.contains_key(&name) || base.is_some_and(|base| families.contains_key(base));
            assert!(is_there, "{file} names {name}");
        }
    }
    let dashboard = std::fs::read_to_string(ops.join("grafana-dashboard.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    let documented = std::fs::read_to_string(ops.join("../docs/operations/metrics.md")).unwrap();
    let documented = named(&documented);
    let missing: Vec<_> = families.keys().filter(|name| !documented.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/operations/metrics.md lacks {missing:?}");
    world.end().await;
}

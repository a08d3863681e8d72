//! Events and webhooks over HTTP.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use proctor_model::EventKind::{Exited, RestartFailed, Started};
use proctor_server::admin::{self, AppOptions};
use proctor_server::control::Caller;
use proctor_store::EventQuery;
use serde_json::{Value, json};

use crate::support::{AGENT, World, event};

/// Whoever waits for this long was not woken: the test hangs.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

fn sequences(answer: &Value) -> Vec<u64> {
    answer["events"].as_array().unwrap().iter().map(|event| event["sequence"].as_u64().unwrap()).collect()
}

fn field(answer: &Value) -> &str {
    answer["error"]["field"].as_str().unwrap_or_default()
}

/// Events 1 to 4 of one agent, after that it came.
async fn world_with_events() -> World {
    let world = World::new().await;
    let session = world.session(AGENT).await;
    let mut reported = event(3, RestartFailed, "web/a");
    reported.report_id = Some(9);
    let events = [event(1, Started, "web/a"), event(2, Exited, "web/b"), reported, event(4, Started, "db/a")];
    world.control.events_arrived(&session, &events).await.unwrap();
    world
}

#[tokio::test]
async fn an_event_is_shown_with_everything() {
    let world = world_with_events().await;

    let (status, answer) = world.get("/events?type=restart_failed").await;

    assert_eq!(status, StatusCode::OK);
    let mut shown = answer["events"][0].clone();
    let (id, stored_at) = (shown["id"].take(), shown["stored_at_ms"].take());
    assert!(id.as_u64().unwrap() > 0 && stored_at.as_i64().unwrap() > 1_700_000_000_000);
    assert_eq!(
        shown,
        json!({
            "id": null, "stored_at_ms": null, "at_ms": 1_618_382_611_690_i64, "host": "0:10.0.0.1", "agent": AGENT,
            "sequence": 3, "type": "restart_failed", "process": "web/a", "proc_name": "nginx", "report_id": 9,
            "content": "event 3", "details": { "pid": "7" },
        })
    );
}

#[tokio::test]
async fn events_are_narrowed_and_paged() {
    let world = world_with_events().await;

    let (_, newest) = world.get("/events?limit=2").await;
    let (_, web) = world.get("/events?after=0&namespace=web").await;
    let (_, one) = world.get("/events?after=0&namespace=web&name=a").await;
    let (_, kinds) = world.get("/events?after=0&type=exited,restart_failed").await;
    let (_, host) = world.get("/events?after=0&host=10.0.0.2").await;
    let (_, first) = world.get("/events?after=0&limit=2").await;
    let (_, rest) = world.get(&format!("/events?after={}", first["next"])).await;
    let (_, nothing) = world.get(&format!("/events?after={}", rest["next"])).await;

    assert_eq!(sequences(&newest), [3, 4]);
    assert_eq!((sequences(&web), sequences(&one), sequences(&kinds)), (vec![1, 2, 3], vec![1, 3], vec![2, 3]));
    assert!(sequences(&host).is_empty());
    assert_eq!((sequences(&first), sequences(&rest)), (vec![0, 1], vec![2, 3, 4]));
    assert_eq!((sequences(&nothing), &nothing["next"]), (vec![], &rest["next"]));
}

#[tokio::test]
async fn events_are_read_backwards_newest_first() {
    let world = world_with_events().await;
    let (_, newest) = world.get("/events?limit=1").await;
    let id = &newest["events"][0]["id"];

    let (_, page) = world.get(&format!("/events?before={id}&limit=2")).await;
    let (_, rest) = world.get(&format!("/events?before={}&limit=9", page["next"])).await;
    let (_, none) = world.get("/events?until_ms=1").await;

    assert_eq!((sequences(&page), sequences(&rest), &rest["next"]), (vec![3, 2], vec![1, 0], &json!(0)));
    assert!(sequences(&none).is_empty());
    let (status, answer) = world.get("/events?before=9&after=1").await;
    assert_eq!((status, field(&answer)), (StatusCode::BAD_REQUEST, "after"));
}

#[tokio::test]
async fn events_are_counted_in_steps() {
    let world = world_with_events().await;

    let (_, day) = world.get("/events/histogram?step=3600").await;
    let (_, web) = world.get("/events/histogram?since=0&until=4000000000&step=604800&namespace=web").await;
    let (_, short) = world.get("/events/histogram?since=100&until=350&step=100&type=exited").await;

    assert_eq!((&day["step"], day["series"]["started"].as_array().unwrap().len()), (&json!(3600), 24));
    assert_eq!((day["series"]["started"][23].as_u64(), day["series"]["exited"][23].as_u64()), (Some(2), Some(1)));
    assert_eq!(field(&web), "step", "too many steps: {web}");
    assert_eq!(short, json!({ "step": 100, "from": 100, "series": {} }));
    for (query, expected) in
        [("step=0", "step"), ("since=9&until=9", "since"), ("type=x", "type"), ("host=no%20host", "host")]
    {
        let (status, answer) = world.get(&format!("/events/histogram?{query}")).await;
        assert_eq!((status, field(&answer)), (StatusCode::BAD_REQUEST, expected), "{answer}");
    }
}

#[tokio::test]
async fn a_bad_question_names_its_field() {
    let world = World::new().await;
    let cases = [
        ("after=x", "after"),
        ("limit=1001", "limit"),
        ("wait=31", "wait"),
        ("type=exploded", "type"),
        ("namespace=a:b", "namespace"),
        ("host=no%20host", "host"),
    ];
    for (query, expected) in cases {
        let (status, answer) = world.get(&format!("/events?{query}")).await;

        assert_eq!((status, field(&answer)), (StatusCode::BAD_REQUEST, expected), "{query}: {answer}");
    }
    assert_eq!(world.get("/events?host=10.0.0.9").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_follower_waits_for_what_matches_and_is_woken_by_it() {
    let world = world_with_events().await;
    let session = world.session("agent-2").await;
    let (_, end) = world.get("/events?limit=0").await;
    let query = EventQuery { after: end["next"].as_u64(), kinds: vec![Exited], limit: 10, ..EventQuery::default() };
    let mut reader = world.control.live_caller(Caller::local("reader"));

    let (followed, ()) = tokio::join!(world.control.follow_events(&mut reader, query, FOR_EVER), async {
        world.control.events_arrived(&session, &[event(1, Started, "web/a")]).await.unwrap();
        tokio::task::yield_now().await;
        world.control.events_arrived(&session, &[event(2, Exited, "web/a")]).await.unwrap();
    });

    let sequences: Vec<u64> = followed.unwrap().events.iter().map(|stored| stored.event.sequence).collect();
    assert_eq!(sequences, [2], "it was woken, not timed out");
}

#[tokio::test]
async fn a_follower_for_whom_nothing_happens_is_answered_in_time_and_at_shutdown() {
    let world = world_with_events().await;

    let (_, waited) = world.get("/events?after=0&type=fd_warning&wait=1").await;
    let query = EventQuery { after: waited["next"].as_u64(), limit: 10, ..EventQuery::default() };
    let mut reader = world.control.live_caller(Caller::local("reader"));
    let following = world.control.follow_events(&mut reader, query, FOR_EVER);
    let (stopped, ()) = tokio::join!(following, async { world.tasks.shutdown().cancel() });

    assert_eq!(sequences(&waited), [0_u64; 0]);
    assert!(stopped.unwrap().events.is_empty(), "the wait was cut short");
}

#[tokio::test]
async fn webhooks_are_added_listed_without_their_secret_and_removed() {
    let world = World::new().await;
    let body = json!({ "url": "https://example.com/hook?key=1", "namespace": "web", "report_id": 9,
                       "types": ["exited", "restart_failed"], "format": "gse", "secret": "hush" });

    let (made, webhook) = world.post("/webhooks", body).await;
    let (_, list) = world.get("/webhooks").await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    let (gone, _) = world.call(Method::DELETE, &path, Value::Null).await;
    let (again, _) = world.call(Method::DELETE, &path, Value::Null).await;
    let (_, empty) = world.get("/webhooks").await;

    assert_eq!(made, StatusCode::CREATED);
    assert_eq!(list, json!({ "webhooks": [webhook] }));
    assert_eq!((&webhook["signed"], &webhook["types"]), (&json!(true), &json!(["exited", "restart_failed"])));
    assert!(!list.to_string().contains("hush"));
    assert_eq!((gone, again, empty), (StatusCode::OK, StatusCode::NOT_FOUND, json!({ "webhooks": [] })));
}

#[tokio::test]
async fn a_bad_webhook_names_its_field_and_strangers_get_none() {
    let world = World::new().await;
    let weak = admin::create_app(&world.store, &"weak".parse().unwrap(), AppOptions::default(), Vec::new())
        .await
        .unwrap()
        .unwrap();
    let url = "http://example.com/";
    let cases = [
        (json!({}), "url"),
        (json!({ "url": "ftp://example.com/" }), "url"),
        (json!({ "url": url, "types": ["started", "exploded"] }), "types[1]"),
        (json!({ "url": url, "types": ["started"], "format": "gse" }), "types"),
        (json!({ "url": url, "format": "xml" }), "format"),
        (json!({ "url": url, "secret": "" }), "secret"),
        (json!({ "url": url, "namspace": "web" }), "namspace"),
    ];
    for (body, expected) in cases {
        let (status, answer) = world.post("/webhooks", body).await;

        assert_eq!((status, field(&answer)), (StatusCode::BAD_REQUEST, expected), "{answer}");
    }
    let (status, answer) = world.call_as("weak", &weak, Method::GET, "/webhooks", Value::Null).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthenticated")), "{answer}");
    assert!(world.store.webhooks().await.unwrap().is_empty());
}

#[tokio::test]
async fn there_are_not_more_webhooks_than_the_server_can_serve() {
    let world = World::new().await;
    for _ in 0..100 {
        assert_eq!(world.post("/webhooks", json!({ "url": "http://127.0.0.1:9/" })).await.0, StatusCode::CREATED);
    }

    let (status, answer) = world.post("/webhooks", json!({ "url": "http://127.0.0.1:9/" })).await;

    assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_argument")));
}

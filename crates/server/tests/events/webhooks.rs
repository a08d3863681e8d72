//! Events on their way to real receivers.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use proctor_model::EventKind::{CancelRestart, Exited, RestartFailed, RestartSucceeded, Started};
use proctor_model::{Event, EventKind, Message};
use proctor_runtime::{Tasks, clock};
use proctor_server::control::Session;
use proctor_server::webhooks::AddressFilter;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::support::{AGENT, World, event, eventually};

/// A world with a connected agent and a receiver that outlives the server.
struct Scene {
    world: World,
    session: Arc<Session>,
    receiver: Receiver,
    outside: Tasks,
    sequence: u64,
}

impl Scene {
    async fn new() -> Self {
        let world = World::new().await;
        let session = world.session(AGENT).await;
        let outside = Tasks::default();
        let receiver = Receiver::start(&outside).await;
        Self { world, session, receiver, outside, sequence: 0 }
    }

    /// Adds a webhook to the receiver with these further fields.
    async fn hook(&self, fields: Value) -> String {
        self.hook_to(&self.receiver, fields).await
    }

    async fn hook_to(&self, receiver: &Receiver, mut body: Value) -> String {
        body["url"] = json!(receiver.url());
        let (status, webhook) = self.world.post("/webhooks", body).await;
        assert_eq!(status, StatusCode::CREATED, "{webhook}");
        webhook["id"].as_str().unwrap().to_owned()
    }

    async fn happens(&mut self, kind: EventKind, process: &str) {
        self.happens_with(kind, process, |_| {}).await;
    }

    async fn happens_with(&mut self, kind: EventKind, process: &str, change: impl FnOnce(&mut Event)) {
        self.sequence += 1;
        let mut event = event(self.sequence, kind, process);
        change(&mut event);
        self.world.control.events_arrived(&self.session, &[event]).await.unwrap();
    }

    /// The one cursor in the store.
    async fn cursor(&self) -> u64 {
        self.world.store.webhooks().await.unwrap()[0].cursor
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.outside.shutdown().cancel();
    }
}

#[tokio::test]
async fn events_after_the_webhook_was_added_arrive_in_order_as_the_api_shows_them() {
    let mut scene = Scene::new().await;
    scene.happens(Started, "web/a").await;
    let id = scene.hook(json!({})).await;

    scene.happens(Exited, "web/a").await;
    scene.happens(Started, "web/a").await;

    assert_eq!(scene.receiver.contents(2).await, ["event 2", "event 3"]);
    let first = &scene.receiver.received()[0];
    let (_, shown) = scene.world.get("/events?type=exited").await;
    assert_eq!(first.json()["events"][0], shown["events"][0]);
    assert_eq!(first.headers["x-proctor-webhook"], id.as_str());
    assert_eq!(first.headers["content-type"], "application/json");
    assert!(!first.headers.contains_key("x-proctor-signature"));
}

#[tokio::test]
async fn events_of_a_cordoned_host_are_kept_and_not_sent() {
    let mut scene = Scene::new().await;
    scene.hook(json!({})).await;
    let cordon = json!({ "reason": "new disk" });

    scene.happens(Exited, "web/a").await;
    let (status, answer) = scene.world.call(axum::http::Method::PUT, "/hosts/10.0.0.1/cordon", cordon).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    scene.happens(Exited, "web/a").await;
    let (status, answer) = scene.world.call(axum::http::Method::DELETE, "/hosts/10.0.0.1/cordon", Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    scene.happens(Started, "web/a").await;

    assert_eq!(scene.receiver.contents(2).await, ["event 1", "event 3"]);
    let (_, shown) = scene.world.get("/events?after=0").await;
    let muted: Vec<bool> = shown["events"].as_array().unwrap().iter().map(|event| event["muted"] == true).collect();
    assert_eq!(muted.iter().filter(|muted| **muted).count(), 1, "{shown}");
}

#[tokio::test]
async fn the_gse_format_is_that_of_the_documents_with_one_data_id_for_each_request() {
    let mut scene = Scene::new().await;
    scene.hook(json!({ "format": "gse" })).await;

    scene.happens(Started, "nodeman/bkmonitorbeat").await;
    scene
        .happens_with(RestartSucceeded, "nodeman/bkmonitorbeat", |event| {
            event.content = Message::foreign("check bkmonitorbeat not running, and restart it success");
            event.proc_name = "bkmonitorbeat".into();
        })
        .await;
    scene.happens_with(CancelRestart, "nodeman/bkmonitorbeat", |event| event.report_id = Some(42)).await;

    let received = eventually("both requests", || async {
        let received = scene.receiver.received();
        (received.len() == 2).then_some(received)
    })
    .await;
    assert_eq!(
        received[0].json(),
        json!({ "data": [{
            "event_name": "process_restart_success",
            "event": { "content": "check bkmonitorbeat not running, and restart it success" },
            "target": "10.0.0.1|0",
            "timestamp": 1_618_382_611_690_i64,
            "dimension": { "bk_target_cloud_id": "0", "bk_target_ip": "10.0.0.1", "process_group_id": "nodeman",
                           "process_index": "nodeman:bkmonitorbeat", "process_name": "bkmonitorbeat",
                           "bk_agent_id": AGENT },
        }], "data_id": 1_100_008 })
    );
    assert_eq!(received[1].json()["data_id"], 42);
}

#[tokio::test]
async fn what_is_sent_is_signed_with_the_secret() {
    let mut scene = Scene::new().await;
    scene.hook(json!({ "secret": "hush" })).await;

    scene.happens(Exited, "web/a").await;
    scene.receiver.contents(1).await;

    let request = &scene.receiver.received()[0];
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"hush");
    let signed = request.headers["x-proctor-signature"].to_str().unwrap().strip_prefix("sha256=").unwrap();
    let tag: Vec<u8> =
        (0..signed.len()).step_by(2).map(|at| u8::from_str_radix(&signed[at..at + 2], 16).unwrap()).collect();
    let timestamp = request.headers["x-proctor-timestamp"].to_str().unwrap();
    let signed = [timestamp.as_bytes(), b".", &request.bytes].concat();
    assert!(aws_lc_rs::hmac::verify(&key, &signed, &tag).is_ok());
    assert!(timestamp.parse::<i64>().unwrap() > 1_700_000_000);
    let kept = scene.world.store.webhooks().await.unwrap().remove(0).secret.unwrap();
    assert!(kept.starts_with("sealed-v1:") && !kept.contains("hush"), "{kept}");
}

#[tokio::test]
async fn a_webhook_gets_only_what_it_asked_for() {
    let mut scene = Scene::new().await;
    let (space, report, kinds) = (
        Receiver::start(&scene.outside).await,
        Receiver::start(&scene.outside).await,
        Receiver::start(&scene.outside).await,
    );
    scene.hook_to(&space, json!({ "namespace": "web" })).await;
    scene.hook_to(&report, json!({ "report_id": 9 })).await;
    scene.hook_to(&kinds, json!({ "types": ["restart_failed", "exited"] })).await;

    scene.happens(Started, "web/a").await;
    scene.happens(RestartFailed, "db/a").await;
    scene.happens_with(Started, "db/a", |event| event.report_id = Some(9)).await;
    scene.happens_with(Exited, "web/b", |event| event.report_id = Some(8)).await;

    assert_eq!(space.contents(2).await, ["event 1", "event 4"]);
    assert_eq!(report.contents(1).await, ["event 3"]);
    assert_eq!(kinds.contents(2).await, ["event 2", "event 4"]);
}

#[tokio::test]
async fn a_request_that_fails_is_repeated_and_a_redirect_is_not_followed() {
    let mut scene = Scene::new().await;
    scene.hook(json!({})).await;
    let before = scene.cursor().await;
    let failures = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TEMPORARY_REDIRECT, StatusCode::NOT_FOUND];
    scene.receiver.fail_with(&failures);

    scene.happens(Exited, "web/a").await;

    assert_eq!(scene.receiver.contents(1).await, ["event 1"]);
    eventually("the cursor moved after the success", || async { (scene.cursor().await > before).then_some(()) }).await;
    assert_eq!(scene.receiver.received().len(), 1);
}

#[tokio::test]
async fn the_place_of_a_webhook_survives_the_server() {
    let mut scene = Scene::new().await;
    scene.hook(json!({})).await;
    scene.happens(Started, "web/a").await;
    scene.receiver.contents(1).await;
    let newest = scene.world.all().await.last().unwrap().id;
    eventually("the delivery is recorded", || async { (scene.cursor().await >= newest).then_some(()) }).await;
    assert!(scene.world.tasks.end(Duration::from_secs(60)).await);
    // What is stored while nobody forwards waits for the next server.
    scene.happens(Exited, "web/a").await;

    scene.world.restart().await;
    scene.session = scene.world.session(AGENT).await;
    scene.happens(Started, "web/a").await;

    assert_eq!(scene.receiver.contents(3).await, ["event 1", "event 2", "event 3"]);
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_no_other() {
    let mut scene = Scene::new().await;
    let stuck = Receiver::start(&scene.outside).await;
    stuck.get_stuck();
    scene.hook_to(&stuck, json!({})).await;
    scene.hook(json!({})).await;
    scene.happens(Started, "web/a").await;
    stuck.contents(1).await;

    for _ in 0..5 {
        scene.happens(Exited, "web/a").await;
    }

    assert_eq!(scene.receiver.contents(6).await.len(), 6);
    assert_eq!(stuck.received().len(), 1, "the other's request still hangs");
}

#[tokio::test]
async fn many_events_come_in_few_requests_that_keep_their_distance() {
    let mut scene = Scene::new().await;
    scene.hook(json!({})).await;
    let begun = tokio::time::Instant::now();
    let events: Vec<Event> = (1..=250).map(|sequence| event(sequence, Exited, "web/a")).collect();

    scene.world.control.events_arrived(&scene.session, &events).await.unwrap();
    scene.sequence = 250;

    assert_eq!(scene.receiver.contents(250).await[249], "event 250");
    let received = scene.receiver.received();
    let counts: Vec<usize> =
        received.iter().map(|request| request.json()["events"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [100, 100, 50]);
    assert!(received[2].at - begun >= Duration::from_millis(100), "at most ten requests a second");
}

#[tokio::test]
async fn what_could_not_be_delivered_within_a_day_is_skipped() {
    let mut scene = Scene::new().await;
    assert!(scene.world.tasks.end(Duration::from_secs(60)).await);
    scene.hook(json!({})).await;
    let day_ago = clock::unix_millis() - 25 * 3600 * 1000;
    let (agent, epoch) = (scene.session.agent(), scene.session.epoch());
    let store = scene.world.store.clone();
    store.append_events(agent, epoch, &[event(1, Exited, "web/a"), event(2, Exited, "web/a")], day_ago).await.unwrap();
    scene.sequence = 2;
    scene.happens(Started, "web/a").await;

    scene.world.restart().await;

    assert_eq!(scene.receiver.contents(1).await, ["event 3"]);
}

#[tokio::test]
async fn a_webhook_that_was_removed_gets_nothing_more() {
    let mut scene = Scene::new().await;
    let id = scene.hook(json!({})).await;
    scene.happens(Started, "web/a").await;
    scene.receiver.contents(1).await;
    let other = Receiver::start(&scene.outside).await;

    scene.world.call(axum::http::Method::DELETE, &format!("/webhooks/{id}"), Value::Null).await;
    // Whoever serves this one has seen that the first is gone.
    scene.hook_to(&other, json!({})).await;
    scene.happens(Exited, "web/a").await;
    other.contents(1).await;
    scene.happens(Started, "web/a").await;
    other.contents(2).await;

    assert!(!scene.receiver.contents(1).await.contains(&"event 3".to_owned()));
}

#[tokio::test]
async fn a_test_is_marked_and_signed_and_moves_no_cursor() {
    let scene = Scene::new().await;
    let id = scene.hook(json!({ "secret": "hush", "types": ["exited"] })).await;
    let before = scene.cursor().await;

    let (status, tested) = scene.world.post(&format!("/webhooks/{id}/test"), json!({})).await;

    assert_eq!(status, StatusCode::OK, "{tested}");
    assert_eq!((&tested["delivered"], &tested["status"], &tested["error"]), (&json!(true), &json!(204), &Value::Null));
    let received = scene.receiver.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].json()["events"][0]["type"], "test");
    assert_eq!(received[0].headers["x-proctor-test"], "true");
    assert_eq!(received[0].headers["x-proctor-webhook"], id.as_str());
    assert!(received[0].headers.contains_key("x-proctor-signature"));
    assert_eq!(scene.cursor().await, before);
}

#[tokio::test]
async fn a_test_tells_what_the_receiver_answered_and_may_not_be_repeated_at_once() {
    let scene = Scene::new().await;
    let id = scene.hook(json!({})).await;
    scene.receiver.fail_with(&[StatusCode::FOUND]);

    let (_, tested) = scene.world.post(&format!("/webhooks/{id}/test"), json!({})).await;
    let (again, refusal) = scene.world.post(&format!("/webhooks/{id}/test"), json!({})).await;
    let (unknown, _) = scene.world.post(&format!("/webhooks/{}/test", uuid::Uuid::nil()), json!({})).await;

    assert_eq!((&tested["delivered"], &tested["status"]), (&json!(false), &json!(302)));
    assert_eq!(tested["error"], "the receiver answered with 302 Found");
    assert_eq!((again, &refusal["error"]["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("too_many_requests")));
    assert_eq!(unknown, StatusCode::NOT_FOUND);
    assert!(scene.receiver.received().is_empty(), "a redirect is not followed");
}

#[tokio::test]
async fn a_test_reaches_only_what_events_may_reach() {
    let scene = Scene::new().await;
    let id = scene.hook(json!({})).await;
    let webhook = scene.world.store.webhooks().await.unwrap().remove(0);
    assert_eq!(webhook.id.to_string(), id);

    let trial = scene.world.control.test_webhook(webhook, AddressFilter::default()).await.unwrap().unwrap();

    assert_eq!(trial.status, None);
    assert!(trial.error.as_ref().is_some_and(|error| error.contains("is a loopback address")), "{trial:?}");
    assert!(scene.receiver.received().is_empty());
}

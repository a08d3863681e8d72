//! Attacks on scarce resources, held while others are served.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use proctor_runtime::Tasks;
use proctor_server::api::{self, ApiState, ConnectionLimits, Settings};
use proctor_store::{AuditPhase, AuditQuery};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::support::{APP, ESB, SECRET, World, on_host};

const PATIENCE: Duration = Duration::from_secs(30);

async fn served(settings: Settings) -> (World, SocketAddr, Tasks) {
    let (world, tasks) = (World::new().await, Tasks::default());
    let state = ApiState::new(world.control.clone(), None, settings);
    let address = api::serve("127.0.0.1:0".parse().unwrap(), state, None, &tasks).await.unwrap();
    (world, address, tasks)
}

async fn connected(address: SocketAddr, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

/// A call with its credentials in the body, on its own connection; nothing if that is closed.
async fn tried(address: SocketAddr) -> String {
    tried_as(address, APP).await
}

async fn tried_as(address: SocketAddr, app: &str) -> String {
    let mut body = on_host("a", "10.0.0.1");
    body["bk_app_code"] = json!(app);
    body["bk_app_secret"] = json!(SECRET);
    body["bk_username"] = json!("admin");
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "POST {ESB}/get_proc_status HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut answer = String::new();
    let mut stream = TcpStream::connect(address).await.unwrap();
    if stream.write_all(format!("{head}{body}").as_bytes()).await.is_ok() {
        let _ = stream.read_to_string(&mut answer).await;
    }
    answer
}

/// As [`tried`], within a generous time.
async fn call(address: SocketAddr) -> String {
    tokio::time::timeout(PATIENCE, tried(address)).await.expect("an answer in time")
}

fn is_success(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.contains(r#""code":0"#)
}

#[tokio::test]
async fn hundreds_of_half_bodies_lock_nobody_out() {
    // Far fewer calls at a time than half bodies.
    let concurrency_limit = NonZeroU32::new(4).unwrap();
    let (world, address, tasks) = served(Settings { concurrency_limit, ..Settings::default() }).await;
    let half = format!("POST {ESB}/get_proc_status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{");
    let mut held = Vec::new();
    for _ in 0..600 {
        held.push(connected(address, half.as_bytes()).await);
    }

    for _ in 0..3 {
        let answer = call(address).await;
        assert!(is_success(&answer), "{answer}");
    }
    drop(held);
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

#[tokio::test]
async fn slow_bodies_of_callers_without_rights_take_no_calls_from_others() {
    let concurrency_limit = NonZeroU32::new(4).unwrap();
    let (world, address, tasks) = served(Settings { concurrency_limit, ..Settings::default() }).await;
    world.app("rightless").await;
    world.app("ordinary").await;
    world.bind("app:ordinary", "viewer", "everything").await;
    let mut held = Vec::new();
    for user in ["ana", "bob"] {
        let who = json!({"bk_app_code": "rightless", "bk_app_secret": SECRET, "bk_username": user});
        for path in [format!("{ESB}/get_proc_status"), "/api/v1/operations".to_owned()] {
            let half = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nX-Bkapi-Authorization: {who}\r\nContent-Length: 1000\r\n\r\n{{"
            );
            for _ in 0..20 {
                held.push(connected(address, half.as_bytes()).await);
            }
        }
    }

    // Without the reserve of administrators.
    for _ in 0..20 {
        let answer = tokio::time::timeout(PATIENCE, tried_as(address, "ordinary")).await.expect("an answer in time");
        assert!(is_success(&answer), "{answer}");
    }
    drop(held);
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

#[tokio::test]
async fn a_large_body_of_a_caller_without_any_role_is_refused_and_not_parsed() {
    let world = World::new().await;
    world.app("rightless").await;
    let who = json!({"bk_app_code": "rightless", "bk_app_secret": SECRET, "bk_username": "rightless"}).to_string();
    let send = |path: &str, length: usize| {
        let body = Body::from(format!("no JSON{}", " ".repeat(length)));
        world.send(Request::post(path).header("X-Bkapi-Authorization", &who).body(body).unwrap())
    };
    let compatible = format!("{ESB}/operate_proc_v2");

    let large = send(&compatible, 300_000).await;
    let large_native = send("/api/v1/operations", 300_000).await;
    let small = send(&compatible, 1000).await;
    let small_native = send("/api/v1/operations", 1000).await;

    assert_eq!((large.code(), large_native.status), (1_306_403, StatusCode::FORBIDDEN), "{}", large.json);
    // In the words of the call, whatever its body may say.
    assert!(large.message().contains("rightless may not operate on anything"), "{}", large.json);
    for (path, class) in
        [("register_proc_info", "register"), ("set_process_group_info", "limits"), ("get_proc_status", "read")]
    {
        let refused = send(&format!("{ESB}/{path}"), 300_000).await;
        assert!(refused.message().contains(&format!("rightless may not {class} on anything")), "{}", refused.json);
        assert_eq!(refused.json["permission"]["actions"][0]["id"], class, "{}", refused.json);
    }
    let query = AuditQuery { limit: 10, newest: true, ..AuditQuery::default() };
    let refused = world.store.audit(&query).await.unwrap();
    let refused: Vec<_> = refused.iter().filter(|entry| entry.draft.phase == AuditPhase::Refused).collect();
    let actions: Vec<_> = refused.iter().map(|entry| entry.draft.action.as_str()).collect();
    let changes = ["operate_proc_v2", "operate", "register_proc_info", "set_process_group_info"];
    assert_eq!(actions, changes, "what would change something leaves a trace");
    assert!(small.message().contains("is not JSON"), "{}", small.json);
    assert_eq!(small_native.status, StatusCode::BAD_REQUEST, "{}", small_native.json);
    world.end().await;
}

#[tokio::test]
async fn long_polls_on_all_connections_lock_nobody_out() {
    // Less than the polls wait.
    const SOON: Duration = Duration::from_secs(25);
    let connections = ConnectionLimits { total: 8, per_peer: 8 };
    let (world, address, tasks) = served(Settings { connections, ..Settings::default() }).await;
    let who = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });
    let poll =
        format!("GET /api/v1/events?wait=30&after=1000000 HTTP/1.1\r\nHost: x\r\nX-Bkapi-Authorization: {who}\r\n\r\n");
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(connected(address, poll.as_bytes()).await);
    }

    let served = async {
        while !is_success(&tried(address).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    tokio::time::timeout(SOON, served).await.expect("a poll gives way");
    drop(held);
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

/// Frames of HTTP/2 that open as many calls as they can and end none.
fn half_calls_of_http2(count: u32) -> Vec<u8> {
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frames.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]); // SETTINGS
    let path = format!("{ESB}/get_proc_status");
    // :method POST, :scheme http, then :path and :authority as literals.
    let mut headers = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    headers.extend(path.as_bytes());
    headers.extend([0x01, 0x01, b'x']);
    for number in 0..count {
        frames.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 4]); // HEADERS, END_HEADERS
        frames.extend((2 * number + 1).to_be_bytes());
        frames.extend(&headers);
    }
    frames
}

#[tokio::test]
async fn http2_connections_full_of_half_calls_lock_nobody_out() {
    let concurrency_limit = NonZeroU32::new(4).unwrap();
    let (world, address, tasks) = served(Settings { concurrency_limit, ..Settings::default() }).await;
    let frames = half_calls_of_http2(200);
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(connected(address, &frames).await);
    }

    for _ in 0..3 {
        let answer = call(address).await;
        assert!(is_success(&answer), "{answer}");
    }
    drop(held);
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

/// Frames of HTTP/2 that make a call and leave no room for its answer.
fn untaken_call_of_http2() -> Vec<u8> {
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frames.extend([0, 0, 6, 4, 0, 0, 0, 0, 0]); // SETTINGS: INITIAL_WINDOW_SIZE is 0
    frames.extend([0, 4, 0, 0, 0, 0]);
    // :method GET, :scheme http, :path /, :authority x; END_STREAM and END_HEADERS
    let headers = [0x82, 0x86, 0x84, 0x01, 0x01, b'x'];
    frames.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    frames.extend(headers);
    frames
}

#[tokio::test]
async fn http2_connections_that_ping_and_take_no_answer_give_way_to_calls() {
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let connections = ConnectionLimits { total: 20, per_peer: 20 };
    let (world, address, tasks) = served(Settings { connections, ..Settings::default() }).await;
    let attack = Tasks::default();
    for _ in 0..20 {
        attack.spawn("attacker", async move {
            loop {
                let (mut read, mut write) = connected(address, &untaken_call_of_http2()).await.into_split();
                // Incoming frames are read: frames besides the answer are no reason to close the connection.
                let pinging = async {
                    while write.write_all(&PING).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                };
                let reading = async { while read.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} };
                tokio::select! {
                    () = pinging => {}
                    () = reading => {}
                }
            }
        });
    }

    for _ in 0..3 {
        let answered = async {
            loop {
                let answer = tried(address).await;
                if is_success(&answer) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("a call gets through");
    }
    assert!(attack.end(PATIENCE).await);
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

#[tokio::test]
async fn idle_connections_and_half_heads_beyond_the_cap_give_way_to_calls() {
    let connections = ConnectionLimits { total: 50, per_peer: 50 };
    let (world, address, tasks) = served(Settings { connections, ..Settings::default() }).await;
    let mut held = Vec::new();
    for number in 0..200 {
        let first: &[u8] = if number % 2 == 0 { b"" } else { b"POST / HTTP/1.1\r\nHost" };
        held.push(connected(address, first).await);
    }

    for _ in 0..3 {
        let answer = call(address).await;
        assert!(is_success(&answer), "{answer}");
    }
    // The oldest were closed.
    let read = tokio::time::timeout(PATIENCE, held[0].read(&mut [0; 16])).await.expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    drop(held);
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

fn native(user: &str, path: &str) -> Request<Body> {
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": user}).to_string();
    Request::get(format!("/api/v1{path}")).header("X-Bkapi-Authorization", who).body(Body::empty()).unwrap()
}

async fn refusal(world: &World, user: &str, path: &str) -> Value {
    let answer = world.send(native(user, path)).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.json);
    answer.json["error"]["message"].clone()
}

/// Where the app has no role of its own and calls for a reader and an administrator.
async fn readers_world(settings: Settings) -> World {
    let world = World::with(settings).await;
    for binding in world.store.bindings().await.unwrap() {
        world.store.delete_binding(binding.id).await.unwrap();
    }
    world.bind("user:reader", "viewer", "everything").await;
    world.bind("user:other", "viewer", "everything").await;
    world.bind("user:boss", "admin", "everything").await;
    world
}

#[tokio::test]
async fn long_polls_of_one_reader_take_neither_calls_nor_waits_from_others() {
    let concurrency_limit = NonZeroU32::new(4).unwrap();
    let world = readers_world(Settings { concurrency_limit, ..Settings::default() }).await;
    let poll = "/events?after=0&wait=30";
    let tasks = Tasks::default();
    for _ in 0..128 {
        let router = world.router.clone();
        // Of the few calls at a time the reader gets two, until it waits.
        let poll =
            async move { while router.clone().oneshot(native("reader", poll)).await.unwrap().status() == 429 {} };
        tasks.spawn("long poll", poll);
    }
    let full = async {
        loop {
            let answer = world.send(native("reader", "/events?after=0&wait=1")).await;
            if answer.json["error"]["message"].as_str().is_some_and(|message| message.contains("that wait")) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, full).await.expect("the reader's part is used up");

    let refused = refusal(&world, "reader", poll).await;
    assert_eq!(refused, "too many requests that wait for events of one caller (limit 128): try again in a moment");
    for user in ["reader", "other", "boss"] {
        assert_eq!(world.send(native(user, "/events?after=0")).await.status, StatusCode::OK, "{user}");
    }
    for user in ["other", "boss"] {
        assert_eq!(world.send(native(user, "/events?after=0&wait=1")).await.status, StatusCode::OK, "{user}");
    }
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}

async fn stream(world: &World, user: &str) -> Option<BodyDataStream> {
    opened(world, user, "/events/stream?after=0").await
}

async fn opened(world: &World, user: &str, path: &str) -> Option<BodyDataStream> {
    let response = world.router.clone().oneshot(native(user, path)).await.unwrap();
    (response.status() == StatusCode::OK).then(|| response.into_body().into_data_stream())
}

#[tokio::test]
async fn streams_of_readers_leave_some_for_others_and_for_the_administrator() {
    let world = readers_world(Settings::default()).await;
    let mut held = Vec::new();
    while let Some(stream) = stream(&world, "reader").await {
        held.push(stream);
    }
    assert_eq!(held.len(), 64);
    let refused = refusal(&world, "reader", "/events/stream").await;
    assert_eq!(refused, "too many event streams and audit exports of one caller (limit 64): try again in a moment");
    // A trusted app that makes up more readers gets half of all.
    for number in 0..7 {
        let user = format!("reader{number}");
        world.bind(&format!("user:{user}"), "viewer", "everything").await;
        while let Some(stream) = stream(&world, &user).await {
            held.push(stream);
        }
    }
    assert_eq!(held.len(), 256);
    let refused = refusal(&world, "other", "/events/stream").await;
    assert_eq!(refused, "too many event streams and audit exports of one caller (limit 256): try again in a moment");

    assert!(stream(&world, "boss").await.is_some(), "the administrator gets in");
    world.app("another").await;
    world.bind("app:another", "viewer", "everything").await;
    let who = json!({"bk_app_code": "another", "bk_app_secret": SECRET, "bk_username": "another"});
    assert_eq!(world.open(&who, "/api/v1/events/stream?after=0").await.status(), StatusCode::OK, "another app gets in");

    drop(held);
    assert!(stream(&world, "other").await.is_some(), "streams that ended are given back");
    world.end().await;
}

#[tokio::test]
async fn audit_exports_that_nobody_reads_are_counted_with_streams() {
    let world = readers_world(Settings::default()).await;
    let mut held = Vec::new();
    while let Some(export) = opened(&world, "boss", "/audit/export").await {
        held.push(export);
        assert!(held.len() < 200, "there is an end");
    }

    assert_eq!(held.len(), 64 + 6, "those of one caller, and of the administrators' reserve");
    held.pop();
    assert!(opened(&world, "boss", "/audit/export").await.is_some(), "exports that ended are given back");
    world.end().await;
}

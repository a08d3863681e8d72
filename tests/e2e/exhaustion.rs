//! Attacks on a real server, held while others are served.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proctor_testkit::{APP, Fleet, Marked, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::descriptors::{descriptor_limits, limited_fleet};
use crate::hosts;

const MIB: u64 = 1024 * 1024;
const STATUS: &str = "/api/c/compapi/v2/gse/get_proc_status/";

/// Memory of the server that is no file's, in bytes.
fn resident(fleet: &Fleet) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", fleet.server.program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Nearly as many values as a body may have, of 20 bytes each.
const VALUES: usize = 1_900_000;
const LONG: u64 = 1_234_567_890_123_456_789;

/// A call with its credentials in the body.
async fn call(fleet: &Fleet, padding: usize) -> i64 {
    let body = json!({"bk_app_code": APP, "bk_app_secret": fleet.secret, "bk_username": "admin",
        "meta": {"namespace": "e2e", "name": "nobody"}, "hosts": hosts(&["10.9.9.9"]), "padding": vec![LONG; padding]});
    let answer = fleet.client.post(fleet.url(STATUS)).body(body.to_string()).send().await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["code"].as_i64().unwrap()
}

#[tokio::test]
async fn large_bodies_of_strangers_take_bounded_memory_and_lock_nobody_out() {
    let fleet = Fleet::start().await.unwrap();
    let (mut senders, sent) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for _ in 0..20 {
        let (port, sent) = (fleet.server.http, sent.clone());
        senders.spawn(async move {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let head = format!("POST {STATUS} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 63 * MIB);
            stream.write_all(head.as_bytes()).await.unwrap();
            let chunk = vec![b' '; 64 * 1024];
            // All but the last byte, as far as the server takes it.
            for _ in 0..(63 * MIB / 65_536 - 1) {
                if stream.write_all(&chunk).await.is_err() {
                    return;
                }
                sent.fetch_add(65_536, Ordering::Relaxed);
            }
            let _ = stream.read(&mut [0; 1024]).await;
        });
    }
    eventually("large bodies are being read", || async { (sent.load(Ordering::Relaxed) > 130 * MIB).then_some(()) })
        .await;

    for _ in 0..5 {
        assert_eq!(call(&fleet, 0).await, 0);
        let resident = resident(&fleet);
        assert!(resident < 300 * MIB, "{} MiB", resident / MIB);
    }
    senders.abort_all();
}

#[tokio::test]
async fn memory_that_a_large_request_took_is_given_back() {
    let fleet = Fleet::start().await.unwrap();
    assert_eq!(call(&fleet, 0).await, 0);
    let before = resident(&fleet);

    // 38 MB of JSON, and twice that once it is parsed.
    assert_eq!(call(&fleet, VALUES).await, 0);

    eventually("the memory is given back", || async { (resident(&fleet) < before + 48 * MIB).then_some(()) }).await;
}

/// POSTs a file over HTTP/2; the answer.
fn over_http2(fleet: &Fleet, path: &str, body: &str) -> String {
    let file = fleet.dir().join("body.json");
    std::fs::write(&file, body).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--http2-prior-knowledge", "--write-out", "HTTP/%{http_version}"]);
    curl.args(["--header", &format!("X-Bkapi-Authorization: {}", fleet.authorization())]);
    curl.args(["--data-binary", &format!("@{}", file.display()), &fleet.url(path)]);
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = String::from_utf8(output.stdout).unwrap();
    answer.strip_suffix("HTTP/2").expect("it is HTTP/2").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_a_large_request_over_http2_took_is_given_back() {
    let fleet = Fleet::start().await.unwrap();
    assert_eq!(call(&fleet, 0).await, 0);
    let before = resident(&fleet);
    let body = json!({"meta": {"namespace": "e2e", "name": "nobody"}, "hosts": hosts(&["10.9.9.9"]),
        "padding": vec![LONG; VALUES]});

    let answer = over_http2(&fleet, STATUS, &body.to_string());

    assert!(answer.contains("\"code\":0"), "{answer}");
    eventually("the memory is given back", || async { (resident(&fleet) < before + 48 * MIB).then_some(()) }).await;
}

/// The beginning of a ClientHello of 512 bytes.
const HALF_HELLO: [u8; 11] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

/// Opens connections again and again, as soon as they are closed, that say this and then nothing.
async fn stall(from: Ipv4Addr, port: u16, first: &'static [u8]) {
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let Ok(mut stream) = socket.connect(([127, 0, 0, 1], port).into()).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.write_all(first).await;
        let _ = stream.read(&mut [0; 16]).await;
    }
}

#[tokio::test]
async fn hundreds_of_silent_peers_do_not_keep_agents_off_the_link() {
    let fleet = Fleet::start().await.unwrap();
    let mut silent = JoinSet::new();
    for _ in 0..700 {
        silent.spawn(stall(Ipv4Addr::LOCALHOST, fleet.server.link, b""));
    }

    let mut agent = fleet.agent("127.0.0.1").await.unwrap();
    agent.restart().unwrap();
    fleet.until_online("127.0.0.1", true).await;

    silent.abort_all();
}

#[tokio::test]
async fn hundreds_of_peers_that_stall_on_an_agents_own_host_do_not_keep_it_off_the_link() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent("127.0.0.1").await.unwrap();
    let mut stalled = JoinSet::new();
    for _ in 0..700 {
        stalled.spawn(stall(Ipv4Addr::LOCALHOST, fleet.server.link, &HALF_HELLO));
    }

    agent.restart().unwrap();
    fleet.until_online("127.0.0.1", true).await;

    stalled.abort_all();
}

#[tokio::test]
async fn a_thousand_peers_that_stall_in_their_greeting_do_not_keep_a_known_agent_off_a_new_server() {
    let mut fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent("127.0.0.1").await.unwrap();
    let mut stalled = JoinSet::new();
    for number in 0..1000_u16 {
        let [high, low] = (number / 4 + 1).to_be_bytes();
        let first: &[u8] = if number % 2 == 0 { b"" } else { &HALF_HELLO };
        stalled.spawn(stall(Ipv4Addr::new(127, 1, high, low), fleet.server.link, first));
    }

    for _ in 0..2 {
        fleet.restart_server().await.unwrap();
        fleet.until_online("127.0.0.1", true).await;
        agent.restart().unwrap();
        fleet.until_online("127.0.0.1", true).await;
    }

    stalled.abort_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_few_descriptors_keeps_its_sessions_through_a_flood_and_takes_new_ones_after_it() {
    const DESCRIPTORS: usize = 500;
    let fleet = limited_fleet(500, 500).await;
    assert_eq!(descriptor_limits(&fleet), (500, 500));
    let agent = fleet.agent("127.0.0.1").await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "flooded").await.unwrap();
    let mut flood = JoinSet::new();
    for number in 0..DESCRIPTORS {
        let [high, low] = u16::try_from(number / 4 + 1).unwrap().to_be_bytes();
        let port = if number % 2 == 0 { fleet.server.http } else { fleet.server.link };
        flood.spawn(stall(Ipv4Addr::new(127, 1, high, low), port, b""));
    }
    let is_flooded = || async { (fleet.server.program.descriptors()? > DESCRIPTORS / 4).then_some(()) };
    eventually("the flood takes descriptors", is_flooded).await;

    for _ in 0..3 {
        eventually("a call gets through", || async { fleet.get("/api/v1/hosts").await.ok() }).await;
    }
    flood.shutdown().await;

    let task = marked.submit(&fleet, "true").await.unwrap();
    fleet.until_final(&task).await;
    let (history, codes) = marked.finish(&fleet).await.unwrap();
    history.assert_holds();
    assert_eq!(codes, [0]);
    assert_eq!(agent.program.log().matches(" connected").count(), 1, "{}", agent.program.log());
    let _another = fleet.agent("127.0.0.2").await.unwrap();
}

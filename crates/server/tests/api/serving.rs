//! On a real socket: the port, the shutdown, and trouble with the store.

use std::time::Duration;

use proctor_runtime::Tasks;
use proctor_server::api::{self, ApiState, Settings};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{ESB, GATEWAY, JOB, World, registered};

async fn exchange(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[tokio::test]
async fn a_connection_that_is_kept_open_does_not_hold_up_the_end() {
    let world = World::new().await;
    let tasks = Tasks::default();
    let state = ApiState::new(world.control.clone(), None, Settings::default());

    let address = api::serve("127.0.0.1:0".parse().unwrap(), state, None, &tasks).await.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let answer = exchange(&mut stream, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let ended = tasks.end(Duration::from_secs(60)).await;

    assert_ne!(address.port(), 0);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    assert!(ended);
    world.end().await;
}

#[tokio::test]
async fn the_sender_of_a_body_beyond_the_limit_gets_to_read_the_answer() {
    let world = World::new().await;
    let tasks = Tasks::default();
    let state = ApiState::new(world.control.clone(), None, Settings::default());
    let address = api::serve("127.0.0.1:0".parse().unwrap(), state, None, &tasks).await.unwrap();
    let length = 65 * 1024 * 1024;

    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST {GATEWAY}/operate_proc_v2 HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; length]).await.unwrap();
    let answer = exchange(&mut stream, "").await;

    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("BODY_SIZE_LIMIT_EXCEED"), "{answer}");
    assert!(tasks.end(Duration::from_secs(60)).await);
    world.end().await;
}

#[tokio::test]
async fn a_taken_port_is_told_with_its_address() {
    let world = World::new().await;
    let tasks = Tasks::default();
    let state = ApiState::new(world.control.clone(), None, Settings::default());
    let address = api::serve("127.0.0.1:0".parse().unwrap(), state.clone(), None, &tasks).await.unwrap();

    let error = api::serve(address, state, None, &tasks).await.unwrap_err();

    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
    assert!(tasks.end(Duration::from_secs(60)).await);
    world.end().await;
}

#[tokio::test]
async fn a_full_store_is_told_in_the_shape_of_each_family() {
    let world = World::bounded(100).await;
    let mut body = registered("a", "10.0.0.1");
    body["spec"]["control"]["start_cmd"] = json!("x".repeat(100_000));
    for number in 0..20 {
        body["meta"]["name"] = json!(format!("process-{number}"));
        body["spec"]["control"]["kill_cmd"] = json!(format!("kill {number}"));
        world.post(&format!("{ESB}/register_proc_info"), body.clone()).await;
    }
    let info = json!({"setup_path": "/d", "proc_name": "n", "pid_path": "/d/n.pid", "start_cmd": "x".repeat(100_000),
        "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]});
    let job = json!({"bk_biz_id": 1, "op_type": 0, "process_infos": [info]});

    body["meta"]["name"] = json!("one-too-many");
    body["spec"]["control"]["kill_cmd"] = json!("kill it");
    let esb = world.post(&format!("{ESB}/register_proc_info"), body.clone()).await;
    let gateway = world.post(&format!("{GATEWAY}/register_proc_info"), body).await;
    let job = world.post(&format!("{JOB}/operate_process"), job).await;

    assert_eq!((esb.status.as_u16(), esb.code()), (200, 1_306_201), "{}", esb.json);
    assert!(esb.message().contains("no space left"), "{}", esb.message());
    assert_eq!((gateway.status.as_u16(), gateway.code()), (503, 1_650_300));
    assert_eq!((job.status.as_u16(), job.code()), (200, 1_210_001));
    world.end().await;
}

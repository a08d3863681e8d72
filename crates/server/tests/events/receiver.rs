//! A real HTTP receiver on the loopback that remembers what it got.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use proctor_runtime::Tasks;
use serde_json::Value;

use crate::support::eventually;

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) at: tokio::time::Instant,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }
}

#[derive(Debug, Default)]
struct Memory {
    received: Vec<Received>,
    /// Answers to give before it is all well, the next one last.
    failures: Vec<StatusCode>,
    is_stuck: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
}

impl Receiver {
    pub(crate) async fn start(tasks: &Tasks) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Self { address, memory: Arc::default() };
        let router = Router::new().route("/hook", post(take)).with_state(receiver.clone());
        tasks.spawn("receiver", async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The next requests are answered with these; then all is well again.
    pub(crate) fn fail_with(&self, statuses: &[StatusCode]) {
        self.memory.lock().unwrap().failures = statuses.iter().rev().copied().collect();
    }

    /// From now on, requests are read and never answered.
    pub(crate) fn get_stuck(&self) {
        self.memory.lock().unwrap().is_stuck = true;
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.memory.lock().unwrap().received.clone()
    }

    /// The contents of all native events so far, once there are `count`.
    pub(crate) async fn contents(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} events were received"), || async {
            let bodies: Vec<Value> = self.received().iter().map(Received::json).collect();
            let events = bodies.iter().flat_map(|body| body["events"].as_array().unwrap());
            let contents: Vec<String> = events.map(|event| event["content"].as_str().unwrap().to_owned()).collect();
            (contents.len() >= count).then_some(contents)
        })
        .await
    }
}

async fn take(State(receiver): State<Receiver>, headers: HeaderMap, bytes: Bytes) -> Response {
    let is_stuck = {
        let mut memory = receiver.memory.lock().unwrap();
        if let Some(status) = memory.failures.pop() {
            let elsewhere = [("location", receiver.url())];
            return (status, elsewhere).into_response();
        }
        memory.received.push(Received { headers, bytes, at: tokio::time::Instant::now() });
        memory.is_stuck
    };
    if is_stuck {
        std::future::pending::<()>().await;
    }
    StatusCode::NO_CONTENT.into_response()
}

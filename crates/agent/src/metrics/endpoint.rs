//! Metrics on a port of the loopback, for a Prometheus or an exporter on the same host.
//!
//! Promised: no address but the loopback's is listened on; at most [`CONNECTIONS_MAX`] connections, each of which has
//! [`TIME_MAX`] for one request of at most [`HEAD_BYTES_MAX`] bytes. Anybody on the host may read it, as they may read
//! `/proc`. Absent: everything of HTTP that a scrape does not need.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_runtime::{Backoff, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use crate::AgentError;
use crate::driver::{Inbox, Input};
use crate::local::{LocalAnswer, LocalCall, LocalRequest};

const CONNECTIONS_MAX: usize = 4;
const TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Where metrics are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) processes: bool,
}

/// Listens until `tasks` end. A port that somebody else has is tried again and again: supervision is worth more.
pub(crate) fn serve(endpoint: Endpoint, inbox: Inbox, tasks: &Tasks) -> Result<(), AgentError> {
    let Endpoint { address, processes } = endpoint;
    if !address.ip().is_loopback() {
        return Err(AgentError::MetricsAddress { address });
    }
    let of_connections = tasks.clone();
    tasks.spawn("metrics", async move {
        let listener = listen(address).await;
        accept(listener, processes, inbox, of_connections).await;
    });
    Ok(())
}

async fn listen(address: SocketAddr) -> TcpListener {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(%address, "metrics are served");
                return listener;
            }
            Err(error) => tracing::warn!(%address, %error, "cannot serve metrics: trying again"),
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

async fn accept(listener: TcpListener, processes: bool, inbox: Inbox, tasks: Tasks) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        backoff.reset();
        let inbox = inbox.clone();
        tasks.spawn("metrics connection", async move {
            let _permit = permit;
            let _ = tokio::time::timeout(TIME_MAX, answer(stream, processes, &inbox)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, processes: bool, inbox: &Inbox) -> std::io::Result<()> {
    let head = head(&mut stream).await?;
    let (status, text) = match requested(&head) {
        Ok(()) => match text(processes, inbox).await {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "the agent ends\n".to_owned()),
        },
        Err(refusal) => refusal,
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Up to the empty line, or as much as there may be.
async fn head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part).await? {
            0 => break,
            count => head.extend_from_slice(&part[..count]),
        }
    }
    Ok(head)
}

/// `GET /metrics`, or what is wrong with it.
fn requested(head: &[u8]) -> Result<(), (&'static str, String)> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(path)) if path.split('?').next() == Some("/metrics") => Ok(()),
        (Some("GET"), Some(_)) => Err(("404 Not Found", "only /metrics is here\n".to_owned())),
        (Some(_), Some(_)) => Err(("405 Method Not Allowed", "only GET is understood\n".to_owned())),
        (_, None) | (None, _) => Err(("400 Bad Request", "this is not an HTTP request\n".to_owned())),
    }
}

async fn text(processes: bool, inbox: &Inbox) -> Option<String> {
    let (answer, answered) = oneshot::channel();
    let request = LocalRequest::Metrics { processes };
    inbox.send(Input::Local(LocalCall { request, uid: 0, answer })).await.ok()?;
    match answered.await.ok()? {
        LocalAnswer::Metrics { text } => Some(text),
        LocalAnswer::About(_)
        | LocalAnswer::Processes { .. }
        | LocalAnswer::Outcome { .. }
        | LocalAnswer::Events { .. }
        | LocalAnswer::Refused { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_addresses_than_the_loopback_are_refused() {
        let (inbox, _inputs) = crate::driver::inbox();
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9311"] {
            let endpoint = Endpoint { address: address.parse().unwrap(), processes: false };

            let refused = serve(endpoint, inbox.clone(), &Tasks::default()).unwrap_err();

            assert!(matches!(refused, AgentError::MetricsAddress { .. }), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_scrape_of_the_port_gets_what_the_driver_tells() {
        let (inbox, mut inputs) = crate::driver::inbox();
        let tasks = Tasks::default();
        let listener = listen("127.0.0.1:0".parse().unwrap()).await;
        let address = listener.local_addr().unwrap();
        tasks.spawn("metrics", accept(listener, true, inbox, tasks.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();

        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let Some(Input::Local(LocalCall { request, answer, .. })) = inputs.recv().await else { panic!("no call") };
        answer.send(LocalAnswer::Metrics { text: "up 1\n".to_owned() }).unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).await.unwrap();

        assert_eq!(request, LocalRequest::Metrics { processes: true });
        assert!(
            told.starts_with("HTTP/1.1 200 OK\r\n")
                && told.ends_with("Content-Length: 5\r\nConnection: close\r\n\r\nup 1\n"),
            "{told}"
        );
        assert!(tasks.end(Duration::from_secs(60)).await);
    }

    #[test]
    fn only_a_get_of_the_metrics_is_answered() {
        let status = |head: &str| requested(head.as_bytes()).err().map(|(status, _)| &status[..3]);

        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), None);
        assert_eq!(status("GET /metrics?x=1 HTTP/1.1\r\n\r\n"), None);
        assert_eq!(status("GET /secrets HTTP/1.1\r\n\r\n"), Some("404"));
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), Some("405"));
        assert_eq!(status("\u{16}\u{3}\u{1}"), Some("400"));
        assert_eq!(status(""), Some("400"));
    }
}

//! Metrics on a loopback port, for a Prometheus or an exporter on the same host.
//!
//! Promised: only loopback addresses are listened on; at most [`CONNECTIONS_MAX`] connections, each with
//! [`HEAD_TIME_MAX`] for a request of at most [`HEAD_BYTES_MAX`] bytes and [`TIME_MAX`] in all. New connections are
//! always accepted: if there are too many, the oldest one without a request is dropped. The driver is queried at most
//! once per [`TEXT_AGE_MAX`]. Anybody on the host may read it, as they may read `/proc`.
//! Absent: everything in HTTP that a scrape does not need.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use proctor_runtime::{Backoff, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::AgentError;
use crate::driver::{Inbox, Input};
use crate::local::{LocalAnswer, LocalCall, LocalRequest};

const CONNECTIONS_MAX: usize = 8;
const HEAD_TIME_MAX: Duration = Duration::from_secs(3);
const TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// How old the served text may be.
const TEXT_AGE_MAX: Duration = Duration::from_secs(1);

/// Where metrics are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) processes: bool,
}

/// Listens until `tasks` end. A port that is in use is retried: supervision is worth more.
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
                tracing::info!(%address, "serving metrics");
                return listener;
            }
            Err(error) => tracing::warn!(%address, %error, "cannot serve metrics, retrying"),
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

async fn accept(listener: TcpListener, processes: bool, inbox: Inbox, tasks: Tasks) {
    let page = Arc::new(Page { processes, inbox, text: Arc::default(), tasks: tasks.clone() });
    let mut connections = Connections::default();
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        backoff.reset();
        let (page, connection) = (page.clone(), connections.admit());
        tasks.spawn("metrics connection", async move {
            let answered = timeout(TIME_MAX, answer(stream, &page, &connection));
            let _ = connection.end.run_until_cancelled(answered).await;
        });
    }
}

/// Those that are open, the oldest first.
#[derive(Debug, Default)]
struct Connections(Vec<Weak<Connection>>);

#[derive(Debug, Default)]
struct Connection {
    end: CancellationToken,
    has_asked: AtomicBool,
}

impl Connections {
    /// Lets one in, instead of another one if need be.
    fn admit(&mut self) -> Arc<Connection> {
        self.0.retain(|connection| connection.strong_count() > 0);
        if self.0.len() >= CONNECTIONS_MAX {
            let is_idle = |connection: &Weak<Connection>| {
                connection.upgrade().is_none_or(|connection| !connection.has_asked.load(Ordering::Relaxed))
            };
            let gives_way = self.0.iter().position(is_idle).unwrap_or(0);
            if let Some(connection) = self.0.remove(gives_way).upgrade() {
                connection.end.cancel();
            }
        }
        let connection = Arc::new(Connection::default());
        self.0.push(Arc::downgrade(&connection));
        connection
    }
}

/// What is served.
#[derive(Debug)]
struct Page {
    processes: bool,
    inbox: Inbox,
    text: Arc<Mutex<Option<Told>>>,
    tasks: Tasks,
}

/// The last text, and when the driver rendered it.
#[derive(Debug)]
struct Told {
    at: Instant,
    text: Arc<str>,
}

impl Page {
    /// None: the agent is shutting down. Callers that arrive while another one asks get the same answer.
    async fn text(&self) -> Option<Arc<str>> {
        let mut last = self.text.clone().lock_owned().await;
        if let Some(told) = last.as_ref().filter(|told| told.at.elapsed() < TEXT_AGE_MAX) {
            return Some(told.text.clone());
        }
        let (processes, inbox) = (self.processes, self.inbox.clone());
        let (answer, answered) = oneshot::channel();
        // The requester may be dropped meanwhile: the answer is there for the next one.
        self.tasks.spawn("metrics text", async move {
            let Some(text) = ask_driver(processes, &inbox).await else { return };
            let text: Arc<str> = text.into();
            *last = Some(Told { at: Instant::now(), text: text.clone() });
            let _ = answer.send(text);
        });
        answered.await.ok()
    }
}

async fn answer(mut stream: TcpStream, page: &Page, connection: &Connection) -> std::io::Result<()> {
    let head = timeout(HEAD_TIME_MAX, head(&mut stream)).await??;
    connection.has_asked.store(true, Ordering::Relaxed);
    let (status, text) = match requested(&head) {
        Ok(()) => match page.text().await {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "the agent is shutting down\n".into()),
        },
        Err((status, reason)) => (status, reason.into()),
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

/// `GET /metrics`, or what is wrong with the request.
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

async fn ask_driver(processes: bool, inbox: &Inbox) -> Option<String> {
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

    #[tokio::test]
    async fn connections_that_ask_for_nothing_do_not_shut_out_a_scrape() {
        let (inbox, mut inputs) = crate::driver::inbox();
        let tasks = Tasks::default();
        let listener = listen("127.0.0.1:0".parse().unwrap()).await;
        let address = listener.local_addr().unwrap();
        tasks.spawn("metrics", accept(listener, false, inbox, tasks.clone()));
        let mut idle = Vec::new();
        for _ in 0..4 * CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut stream = TcpStream::connect(address).await.unwrap();

        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
        let Some(Input::Local(LocalCall { answer, .. })) = inputs.recv().await else { panic!("no call") };
        answer.send(LocalAnswer::Metrics { text: "up 1\n".to_owned() }).unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).await.unwrap();

        assert!(told.ends_with("up 1\n"), "{told}");
        assert!(tasks.end(Duration::from_secs(60)).await);
    }

    #[test]
    fn of_too_many_connections_the_oldest_goes_that_has_asked_for_nothing() {
        let mut connections = Connections::default();
        let mut open: Vec<Arc<Connection>> = (0..CONNECTIONS_MAX).map(|_| connections.admit()).collect();
        open[0].has_asked.store(true, Ordering::Relaxed);

        open.push(connections.admit());
        let gone = |open: &[Arc<Connection>]| open.iter().position(|connection| connection.end.is_cancelled());
        assert_eq!(gone(&open), Some(1));
        open.remove(1);
        drop(open.pop());
        open.push(connections.admit());

        assert_eq!(gone(&open), None, "one has ended by itself");
        open.iter().for_each(|connection| connection.has_asked.store(true, Ordering::Relaxed));
        open.push(connections.admit());
        assert_eq!(gone(&open), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_driver_is_asked_once_a_second_however_many_scrape() {
        let (inbox, mut inputs) = crate::driver::inbox();
        let page = Arc::new(Page { processes: false, inbox, text: Arc::default(), tasks: Tasks::default() });
        let tasks = Tasks::default();
        tasks.spawn("driver", async move {
            let mut calls = 0;
            while let Some(Input::Local(LocalCall { answer, .. })) = inputs.recv().await {
                calls += 1;
                let _ = answer.send(LocalAnswer::Metrics { text: format!("calls {calls}\n") });
            }
        });

        let (one, other) = tokio::join!(page.text(), page.text());
        tokio::time::advance(TEXT_AGE_MAX).await;
        let later = page.text().await;

        let told = [one, other, later].map(|text| text.unwrap().to_string());
        assert_eq!(told, ["calls 1\n", "calls 1\n", "calls 2\n"]);
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

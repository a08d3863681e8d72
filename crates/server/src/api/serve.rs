//! The loop that accepts HTTP connections, and the lifetime of one connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response, Version};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use proctor_runtime::{Backoff, Tasks};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::connections::{Admitted, Answering, Asking, Connections, SharedAnswer, Watched};
use super::https::Https;
use super::proxies::OverTls;
use super::settings::Networks;
use crate::log_limit::LogLimit;

/// After shutdown is requested, requests in progress get this long to finish.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// An evicted connection may finish a response that is almost written.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// Calls at the same time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;
/// What a peer may send on one HTTP/2 connection before it is read.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1024;
/// Bounds headers, and what is read of a body ahead of its reader.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// What every connection needs.
#[derive(Debug)]
pub(super) struct Service {
    router: Router,
    builder: Builder<TokioExecutor>,
    https: Option<Https>,
    proxies: Networks,
    shutdown: CancellationToken,
    /// Peers that speak something else.
    strangers: LogLimit,
}

impl Service {
    pub(super) fn new(
        router: Router,
        https: Option<Https>,
        proxies: Networks,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { router, builder: builder(), https, proxies, shutdown, strangers: LogLimit::default() })
    }
}

/// Until shutdown.
pub(super) async fn accept(listener: TcpListener, service: Arc<Service>, connections: Arc<Connections>, tasks: Tasks) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        backoff.reset();
        let address = peer.ip().to_canonical();
        let is_proxy = service.proxies.contain(address);
        let admitted = if is_proxy { connections.admit_proxy(address) } else { connections.admit(address) };
        let Some(admitted) = admitted else {
            tracing::debug!(%peer, "too many HTTP connections: a new one is closed");
            continue;
        };
        let service = service.clone();
        tasks.spawn_to_end("http connection", async move {
            Box::pin(carry(stream, peer, admitted, &service)).await;
        });
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // `connections` watches the time of heads; this would also end idle connections early.
    builder.http1().header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES);
    builder
}

async fn carry(stream: TcpStream, peer: SocketAddr, admitted: Admitted, service: &Service) {
    // Answers are small and whole: waiting to fill a segment only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(https) = &service.https else { return carry_http(stream, peer, admitted, service).await };
    let shaken = tokio::select! {
        shaken = https.accept(stream, peer) => shaken,
        () = admitted.connection.gives_way.cancelled() => None,
        () = service.shutdown.cancelled() => None,
    };
    if let Some(stream) = shaken {
        carry_http(stream, peer, admitted, service).await;
    }
}

/// HTTP over a socket, or over TLS.
async fn carry_http<S>(stream: S, peer: SocketAddr, admitted: Admitted, service: &Service)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let told = |ended| service.told(peer, ended);
    let Service { router, builder, https, shutdown, .. } = service;
    let connection = admitted.connection.clone();
    let service = service_fn(|mut request: Request<Incoming>| {
        let length = request.body().size_hint().exact();
        let call = connection.begin_call(request.version() == Version::HTTP_2, length);
        request.extensions_mut().insert(ConnectInfo(peer));
        if https.is_some() {
            request.extensions_mut().insert(OverTls);
        }
        request.extensions_mut().insert(connection.clone());
        let (router, connection, https) = (router.clone(), connection.clone(), https.clone());
        let connections = admitted.connections.clone();
        async move {
            let was_known = connection.is_known();
            let asking = connection.clone();
            let request = request.map(|body| Body::new(Asking { body, connection: asking }));
            let mut response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            if let Some(https) = https.filter(|_| !was_known && connection.is_known()) {
                https.know(peer.ip());
            }
            let shared = response.extensions_mut().remove::<SharedAnswer>();
            let bytes = shared.as_ref().map_or_else(|| response.body().size_hint().lower(), SharedAnswer::bytes);
            let response = response.map(|body| Answering::new(body, call, shared));
            connections.bound_untaken(bytes);
            Ok::<Response<Answering>, Infallible>(response)
        }
    });
    let watched = Watched { stream, connection: admitted.connection.clone() };
    let mut served = pin!(builder.serve_connection(TokioIo::new(watched), service));
    let patience = tokio::select! {
        ended = served.as_mut() => return told(ended),
        () = admitted.connection.gives_way.cancelled() => GOODBYE_MAX,
        () = shutdown.cancelled() => DRAIN_MAX,
    };
    // Its descriptor is wanted at once, except for a few that have an answer to end.
    let goodbye = admitted.connections.say_goodbye();
    if !shutdown.is_cancelled() && (goodbye.is_none() || admitted.connection.has_no_answer_under_way()) {
        return;
    }
    served.as_mut().graceful_shutdown();
    match tokio::time::timeout(patience, served).await {
        Ok(ended) => told(ended),
        Err(_) if shutdown.is_cancelled() => tracing::warn!(%peer, "HTTP requests were cut off by the shutdown"),
        Err(_) => {}
    }
}

impl Service {
    /// A client that speaks TLS to a plain port can be fixed; the rest is for debugging.
    fn told(&self, peer: SocketAddr, ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
        let Err(error) = ended else { return };
        let is_no_http = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse);
        if is_no_http
            && self.https.is_none()
            && let Some(unlogged) = self.strangers.turn(Instant::now())
        {
            let why = "the peer does not speak HTTP: if it speaks HTTPS, let it use http://, or serve HTTPS here \
                       (--tls-cert and --tls-key, or --tls-self)";
            return tracing::warn!(%peer, why, unlogged, "HTTP connection failed");
        }
        tracing::debug!(%peer, %error, "HTTP connection closed with an error");
    }
}

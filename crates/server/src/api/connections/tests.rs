use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use proctor_runtime::Tasks;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::untaken::UNTAKEN_BYTES_MAX;
use super::*;
use crate::api::https::{self, Https};
use crate::api::serve;
use crate::api::settings::Networks;

const LIMITS: ConnectionLimits = ConnectionLimits { total: 3, per_peer: 2 };

fn peer(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[test]
fn caps_leave_half_of_the_descriptors_to_agents() {
    assert_eq!(ConnectionLimits::of_descriptors(Some(1024)), ConnectionLimits { total: 448, per_peer: 336 });
    assert_eq!(ConnectionLimits::of_descriptors(Some(64)).total, 32);
    assert_eq!(ConnectionLimits::of_descriptors(None), ConnectionLimits { total: 8192, per_peer: 6144 });
}

#[test]
fn idle_strangers_give_way_before_slow_ones_and_those_before_idle_callers() {
    let started = Instant::now().checked_sub(2 * SLOW_AFTER).unwrap();
    let connections = Connections::with(ConnectionLimits { total: 3, per_peer: 3 }, PATIENCE, started);
    let [idle_caller, slow, idle] = [0; 3].map(|_| connections.admit(peer(1)).unwrap());
    idle_caller.connection.is_of_somebody_known();
    let _call = slow.connection.begin_call(false, Some(0));
    slow.connection.last_progress.store(0, Ordering::Relaxed);
    let gone = || [&idle_caller, &slow, &idle].map(|admitted| admitted.connection.gives_way.is_cancelled());

    let first = connections.admit(peer(2)).unwrap();
    assert_eq!(gone(), [false, false, true]);
    let _busy = first.connection.begin_call(false, Some(0));
    let second = connections.admit(peer(2)).unwrap();
    assert_eq!(gone(), [false, true, true]);
    let _busy_too = second.connection.begin_call(false, Some(0));
    let third = connections.admit(peer(2)).unwrap();
    assert_eq!(gone(), [true, true, true]);
    drop(third);
}

#[test]
fn work_for_somebody_known_never_gives_way() {
    let connections = Connections::new(LIMITS);
    let open: Vec<_> = [1, 1, 2].into_iter().map(|last| connections.admit(peer(last)).unwrap()).collect();
    let calls: Vec<_> = open.iter().map(|admitted| admitted.connection.begin_call(true, None)).collect();
    for admitted in &open {
        admitted.connection.is_of_somebody_known();
    }

    assert!(connections.admit(peer(3)).is_none());

    drop(calls);
    assert!(connections.admit(peer(3)).is_some());
}

#[test]
fn an_answer_that_nobody_takes_gives_way_and_is_overdue() {
    let started = Instant::now().checked_sub(2 * SLOW_AFTER).unwrap();
    let connections = Connections::with(ConnectionLimits { total: 1, per_peer: 1 }, PATIENCE, started);
    let admitted = connections.admit(peer(1)).unwrap();
    let connection = &admitted.connection;
    connection.is_of_somebody_known();
    let mut call = connection.begin_call(true, None);
    connection.last_progress.store(1, Ordering::Relaxed);
    assert!(connections.admit(peer(2)).is_none(), "its handler is at work");
    let body = connection.mark_idle();
    assert!(connection.rank(connection.now()).is_some(), "its body comes slowly");
    drop(body);
    assert!(connection.rank(connection.now()).is_none());

    call.answers();

    assert!(!connection.is_overdue(connection.now()));
    assert!(connection.is_overdue(connection.now() + millis(PATIENCE.stall) + 10));
    assert!(connections.admit(peer(2)).is_none(), "it has just begun to answer");
    connection.last_progress.store(1, Ordering::Relaxed);
    assert!(connections.admit(peer(2)).is_some());
    assert!(connection.gives_way.is_cancelled());
}

#[test]
fn whoever_moves_next_to_nothing_gives_way() {
    let started = Instant::now().checked_sub(10 * SLOW_AFTER).unwrap();
    let connections = Connections::with(ConnectionLimits { total: 1, per_peer: 1 }, PATIENCE, started);
    let admitted = connections.admit(peer(1)).unwrap();
    let connection = &admitted.connection;
    let _call = connection.begin_call(false, Some(1 << 30));
    let _body = connection.mark_idle();
    let after_seconds = connection.now() - millis(5 * SLOW_AFTER);
    connection.busy_since.store(after_seconds, Ordering::Relaxed);
    connection.has_sent(1 << 20);
    connection.progresses();
    assert!(connections.admit(peer(2)).is_none(), "its body comes at a fair rate");
    connection.is_of_somebody_known();
    connection.progresses();
    assert!(connections.admit(peer(2)).is_none());

    connection.busy_moved.store(5 * MOVED_BYTES_MIN, Ordering::Relaxed);

    assert!(connections.admit(peer(2)).is_some());
    assert!(connection.gives_way.is_cancelled());
}

#[test]
fn answers_that_nobody_takes_hold_a_bounded_number_of_bytes() {
    let connections = Connections::new(LIMITS);
    let [large, small] = [1, 2].map(|last| connections.admit(peer(last)).unwrap());
    let (mut first, mut second) = (large.connection.begin_call(true, None), small.connection.begin_call(true, None));
    first.holds(UNTAKEN_BYTES_MAX);
    connections.bound_untaken(UNTAKEN_BYTES_MAX);
    assert!(!large.connection.gives_way.is_cancelled());

    second.holds(UNTAKEN_BYTES_MIN);
    connections.bound_untaken(UNTAKEN_BYTES_MIN);

    assert!(large.connection.gives_way.is_cancelled() && !small.connection.gives_way.is_cancelled());
    drop((first, second));
    assert_eq!(large.connection.untaken_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn an_answer_that_many_take_is_counted_once() {
    let connections = Connections::new(ConnectionLimits { total: 100, per_peer: 100 });
    let half = || SharedAnswer::new(usize::try_from(UNTAKEN_BYTES_MAX / 2).unwrap());
    let (first, second, third) = (half(), half(), half());
    let taking = |answer: &SharedAnswer| {
        let admitted = connections.admit(peer(1)).unwrap();
        let call = admitted.connection.begin_call(false, Some(0));
        call.shares(answer.clone());
        (admitted, call)
    };
    let is_gone = |(admitted, _): &(Admitted, InFlight)| admitted.connection.gives_way.is_cancelled();

    let mut held: Vec<_> = (0..10).map(|_| taking(&first)).collect();
    held.push(taking(&second));
    connections.bound_untaken(UNTAKEN_BYTES_MAX);
    assert!(!held.iter().any(is_gone));

    // One that is the only holder of much frees it, one of ten does not.
    held.push(taking(&third));
    connections.bound_untaken(UNTAKEN_BYTES_MAX);

    assert_eq!(held.iter().filter(|taken| is_gone(taken)).count(), 1);
    assert!(is_gone(&held[10]) || is_gone(&held[11]));
    drop(held);
    connections.bound_untaken(UNTAKEN_BYTES_MAX);
    assert_eq!(connections.count(), 0);
}

#[test]
fn a_peer_beyond_its_share_loses_a_connection_of_its_own() {
    let connections = Connections::new(LIMITS);
    let other = connections.admit(peer(2)).unwrap();
    let own = [connections.admit(peer(1)).unwrap(), connections.admit(peer(1)).unwrap()];

    let _new = connections.admit(peer(1)).unwrap();

    assert!(!other.connection.gives_way.is_cancelled());
    assert!(own[0].connection.gives_way.is_cancelled());
}

#[test]
fn half_heads_idle_connections_and_peers_that_do_not_read_are_overdue() {
    let connections = Connections::new(LIMITS);
    let admitted = connections.admit(peer(1)).unwrap();
    let connection = &admitted.connection;
    let after = |duration: Duration| connection.now() + millis(duration) + 10;

    assert!(!connection.is_overdue(connection.now()));
    assert!(connection.is_overdue(after(PATIENCE.head)), "no head");
    connection.has_read(b"GET / HTTP/1.1\r\n\r\n");
    let call = connection.begin_call(false, Some(0));
    assert!(!connection.is_overdue(after(PATIENCE.idle)), "at work");
    drop(call);
    assert!(!connection.is_overdue(after(PATIENCE.head)), "between two requests");
    assert!(connection.is_overdue(after(PATIENCE.idle)));
    connection.has_read(b"G");
    assert!(connection.is_overdue(after(PATIENCE.head)), "half a second head");
    let _call = connection.begin_call(false, Some(0));
    connection.has_written(&Poll::Pending);
    assert!(connection.is_overdue(after(PATIENCE.stall)), "does not read");
    connection.has_written(&Poll::Ready(Ok(1)));
    assert!(!connection.is_overdue(after(PATIENCE.stall)));
}

#[test]
fn addresses_of_one_ipv6_network_share_what_a_peer_gets() {
    let share = |address: &str| share_of(address.parse().unwrap());

    assert_eq!(share("2001:db8::1"), share("2001:db8::ffff:0:0:2"));
    assert_ne!(share("2001:db8::1"), share("2001:db8:0:1::1"));
    assert_eq!(share("::ffff:192.0.2.1"), share("192.0.2.1"));
    assert_ne!(share("192.0.2.1"), share("192.0.2.2"));
}

#[test]
fn single_bytes_and_frames_besides_calls_are_no_movement() {
    let started = Instant::now().checked_sub(2 * SLOW_AFTER).unwrap();
    let connections = Connections::with(LIMITS, PATIENCE, started);
    let admitted = connections.admit(peer(1)).unwrap();
    let connection = &admitted.connection;
    connection.is_of_somebody_known();
    let mut call = connection.begin_call(true, None);
    let body = connection.mark_idle();
    connection.last_progress.store(1, Ordering::Relaxed);
    let is_slow = || connection.rank(connection.now()).is_some();

    connection.has_read(b"a ping");
    connection.has_written(&Poll::Ready(Ok(17)));
    connection.has_sent(1);
    assert!(is_slow());
    connection.has_sent(1023);
    assert!(!is_slow(), "a kilobyte");

    drop(body);
    call.answers();
    connection.last_progress.store(1, Ordering::Relaxed);
    connection.has_read(b"a ping");
    connection.has_written(&Poll::Ready(Ok(17)));
    assert!(is_slow());
    assert!(connection.is_overdue(connection.now() + millis(PATIENCE.stall)));
    call.hands_over(false);
    assert!(!connection.is_overdue(connection.now() + 2 * millis(PATIENCE.stall)), "it is we who are waited for");
}

#[test]
fn a_stranger_with_one_answer_untaken_gives_way_whatever_else_it_calls() {
    let started = Instant::now().checked_sub(2 * SLOW_AFTER).unwrap();
    let connections = Connections::with(ConnectionLimits { total: 1, per_peer: 1 }, PATIENCE, started);
    let admitted = connections.admit(peer(1)).unwrap();
    let connection = &admitted.connection;
    let mut call = connection.begin_call(true, None);
    call.answers();
    assert!(connections.admit(peer(2)).is_none(), "it has just been answered");

    connection.untaken.lock().insert(call.number, 1);
    let _another = connection.begin_call(true, None);

    assert!(connections.admit(peer(2)).is_some());
    assert!(connection.gives_way.is_cancelled());
}

#[test]
fn goodbyes_are_few() {
    let connections = Connections::new(LIMITS);
    let held: Vec<_> = std::iter::from_fn(|| connections.say_goodbye()).take(1000).collect();

    assert_eq!(held.len(), GOODBYES_MAX);
    drop(held);
    assert!(connections.say_goodbye().is_some());
}

/// With a short time for heads and long ones for everything else.
async fn served() -> (std::net::SocketAddr, Tasks) {
    served_over(None).await
}

async fn served_over(https: Option<Https>) -> (std::net::SocketAddr, Tasks) {
    let patience = Patience { head: Duration::from_millis(500), idle: Duration::from_secs(3600), ..PATIENCE };
    let connections = Connections::with(ConnectionLimits::of_total(100), patience, Instant::now());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/", get(|| async { "answered" }))
        .route("/", post(|body: Bytes| async move { format!("answered {}", body.len()) }));
    let tasks = Tasks::default();
    let service = serve::Service::new(router, https, Networks::default(), tasks.shutdown());
    tasks.spawn_critical("http listener", serve::accept(listener, service, connections.clone(), tasks.clone()));
    tasks.spawn_critical("http connections", connections.close_overdue());
    (address, tasks)
}

async fn sent(address: std::net::SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

async fn until_answered<S: AsyncRead + Unpin>(stream: &mut S) {
    let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
    while !answer.windows(8).any(|window| window == b"answered") {
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..read]);
    }
}

#[tokio::test]
async fn half_a_head_behind_whole_requests_has_as_much_time_as_a_first_one() {
    const REQUESTS: [&str; 4] = [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    let (address, tasks) = served().await;
    let mut idle = Vec::new();
    for request in &REQUESTS[..3] {
        let mut stream = sent(address, request).await;
        until_answered(&mut stream).await;
        idle.push(stream);
    }

    for request in REQUESTS {
        let mut stream = sent(address, &format!("{request}GET / HTTP/1.1\r\nHost: ")).await;
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
        closed.expect("it is closed").unwrap();
        assert!(String::from_utf8_lossy(&rest).contains("answered"), "{request}");
    }

    for mut stream in idle {
        stream.write_all(REQUESTS[0].as_bytes()).await.unwrap();
        until_answered(&mut stream).await;
    }
    assert!(tasks.end(Duration::from_secs(60)).await);
}

async fn shaken(address: std::net::SocketAddr, fingerprint: &str) -> TlsStream<TcpStream> {
    let config = proctor_pki::pinned_config(fingerprint).unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

async fn until_closed<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "it is closed");
}

#[tokio::test]
async fn handshakes_and_heads_over_tls_have_as_much_time_as_heads_over_plain_http() {
    let (_dir, https) = https::tests::with_files();
    let fingerprint = https.fingerprint();
    let (address, tasks) = served_over(Some(https)).await;
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    let mut silent = TcpStream::connect(address).await.unwrap();
    // The beginning of a ClientHello.
    let mut stalled = TcpStream::connect(address).await.unwrap();
    stalled.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).await.unwrap();
    let mut half_head = shaken(address, &fingerprint).await;
    half_head.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
    let mut half_head_behind = shaken(address, &fingerprint).await;
    half_head_behind.write_all(&[REQUEST, b"GET / HT"].concat()).await.unwrap();
    let mut whole = shaken(address, &fingerprint).await;

    whole.write_all(REQUEST).await.unwrap();
    until_answered(&mut whole).await;
    until_answered(&mut half_head_behind).await;
    until_closed(&mut silent).await;
    until_closed(&mut stalled).await;
    until_closed(&mut half_head).await;
    until_closed(&mut half_head_behind).await;
    whole.write_all(REQUEST).await.unwrap();
    until_answered(&mut whole).await;
    assert!(tasks.end(Duration::from_secs(60)).await);
}

#[tokio::test]
async fn plain_http_on_the_https_port_is_told_what_to_write() {
    let (_dir, https) = https::tests::with_files();
    let (address, tasks) = served_over(Some(https)).await;

    let mut stream = sent(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;

    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("write https:// here\n"), "{answer}");
    assert!(tasks.end(Duration::from_secs(60)).await);
}

#[tokio::test]
async fn an_answer_over_tls_that_nobody_takes_is_closed() {
    let (_dir, https) = https::tests::with_files();
    let fingerprint = https.fingerprint();
    let patience = Patience { stall: Duration::from_millis(500), ..PATIENCE };
    let connections = Connections::with(ConnectionLimits::of_total(100), patience, Instant::now());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(|| async { vec![b'x'; 64 * 1024 * 1024] }));
    let tasks = Tasks::default();
    let service = serve::Service::new(router, Some(https), Networks::default(), tasks.shutdown());
    tasks.spawn_critical("http listener", serve::accept(listener, service, connections.clone(), tasks.clone()));
    tasks.spawn_critical("http connections", connections.clone().close_overdue());

    let mut stream = shaken(address, &fingerprint).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();

    let gone = async {
        while connections.open.lock().values().next().is_some_and(|open| !open.gives_way.is_cancelled()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("its connection is asked to go");
    assert!(tasks.end(Duration::from_secs(60)).await);
}

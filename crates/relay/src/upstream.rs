//! The connections to the server, and the agents that each of them carries.
//!
//! Promised: a connection that ends, or is silent for a while, closes its streams and is re-established; an agent
//! gets the connection with the fewest agents; the heartbeats of all agents are sent together, and in time however
//! much else there is to send. The certificate is renewed over a connection long before it expires. Absent: the
//! agents' side (see `listener`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_runtime::{Backoff, Tasks, prepare_link};
use proctor_wire::{
    Counted, Incoming, Lost, MuxError, MuxStream, NoSession, Outgoing, RELAY_STREAMS_MAX, RelayCodec, RelayFrame,
    Streams, Trusted, ends, framed,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::greetings::{Greeting, Greetings};
use crate::identity::Identity;
use crate::passenger::HeartbeatSet;
use crate::{Options, explain};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A server that sends no byte for this long is gone; it answers what is sent every second or so.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Upper bound on what the server may ask for.
const BEATS_INTERVAL_MAX: Duration = Duration::from_secs(5);
const RENEW_PERIOD: Duration = Duration::from_secs(3600);
/// A connection that lasted this long was a success.
const STEADY: Duration = Duration::from_secs(30);
/// How often the log says how many agents there are.
const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// Wait after a refusal that only people can resolve.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

type Stream = TlsStream<Counted<TcpStream>>;
type Frames = Outgoing<Stream, RelayFrame, RelayFrame>;
type Arrivals = Incoming<Stream, RelayFrame, RelayFrame>;

/// Why a connection to the server has ended.
#[derive(Debug, thiserror::Error)]
enum UpstreamEnd {
    #[error(transparent)]
    Session(#[from] NoSession),
    #[error("the server violated the protocol")]
    Rules(#[from] MuxError),
    #[error("the server sent a message that only a relay may send")]
    Misspoken,
    #[error("the identity cannot be used")]
    Pki(#[from] proctor_pki::PkiError),
}

impl UpstreamEnd {
    fn refused(reason: String, retry: bool) -> Self {
        Self::Session(NoSession::Refused { reason, retry })
    }

    /// What it means and what to do, in one line.
    fn explain(&self, server: &str) -> String {
        match self {
            Self::Session(no_session) => explain(no_session, server),
            Self::Rules(_) | Self::Misspoken | Self::Pki(_) => explain(self, server),
        }
    }
}

impl From<std::io::Error> for UpstreamEnd {
    fn from(error: std::io::Error) -> Self {
        Self::Session(error.into())
    }
}

impl From<Lost> for UpstreamEnd {
    fn from(lost: Lost) -> Self {
        Self::Session(lost.into())
    }
}

/// A connection that is open.
#[derive(Clone, Debug)]
struct Open {
    streams: Streams,
    heard: HeartbeatSet,
    greetings: Greetings,
}

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) addresses: Vec<String>,
    open: Mutex<Vec<Option<Open>>>,
}

/// What an agent needs of its connection to the server.
pub(crate) struct Passage {
    pub(crate) stream: MuxStream,
    pub(crate) heard: HeartbeatSet,
    pub(crate) greeting: Greeting,
}

impl Upstreams {
    pub(crate) fn is_connected(&self) -> bool {
        self.open.lock().iter().any(Option::is_some)
    }

    #[cfg(test)]
    pub(crate) fn with_one_connection() -> Self {
        let open =
            Open { streams: Streams::new(1000), heard: HeartbeatSet::default(), greetings: Greetings::default() };
        Self { addresses: Vec::new(), open: Mutex::new(vec![Some(open)]) }
    }

    /// Open connections carry nothing more.
    pub(crate) fn end(&self) {
        self.open.lock().iter().flatten().for_each(|open| open.streams.end());
    }

    /// Connections that are open, and agents on them.
    fn load(&self) -> (usize, usize) {
        let open = self.open.lock();
        let agents = open.iter().flatten().map(|open| open.streams.count()).sum();
        (open.iter().flatten().count(), agents)
    }

    fn least_used(&self) -> Option<Open> {
        self.open.lock().iter().flatten().min_by_key(|open| open.streams.count()).cloned()
    }

    /// A stream for an agent with this certificate, when it is its key's turn. None if no connection has room, or
    /// the key has too many greetings in progress.
    pub(crate) async fn board(&self, key: &str, certificate_der: Vec<u8>) -> Option<Passage> {
        let Open { streams, heard, greetings } = self.least_used()?;
        let greeting = greetings.begin(key).await?;
        Some(Passage { stream: streams.open(certificate_der)?, heard, greeting })
    }
}

/// Connects, and keeps connected, until `tasks` end.
pub(crate) fn start(options: &Options, identity: Arc<Identity>, tasks: &Tasks) -> Arc<Upstreams> {
    let count = options.connections as usize;
    let upstreams = Arc::new(Upstreams { addresses: options.upstreams.clone(), open: Mutex::new(vec![None; count]) });
    for index in 0..count {
        let keeper = ConnectionKeeper {
            index,
            streams_max: RELAY_STREAMS_MAX.min(options.agents_max as usize),
            identity: identity.clone(),
            upstreams: upstreams.clone(),
        };
        tasks.spawn_critical("upstream connection", keeper.run());
    }
    let of_report = upstreams.clone();
    tasks.spawn("load report", async move { report(&of_report).await });
    upstreams
}

/// Logs a line if something has changed, at most once per period.
async fn report(upstreams: &Upstreams) {
    let (mut period, mut logged) = (tokio::time::interval(REPORT_PERIOD), (0, 0));
    loop {
        period.tick().await;
        let (connections, agents) = upstreams.load();
        if (connections, agents) != logged {
            tracing::info!(connections, agents, "carrying");
            logged = (connections, agents);
        }
    }
}

/// One of the connections.
struct ConnectionKeeper {
    index: usize,
    streams_max: usize,
    identity: Arc<Identity>,
    upstreams: Arc<Upstreams>,
}

impl ConnectionKeeper {
    async fn run(self) {
        let mut short = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));
        let mut refused = Backoff::new(REFUSED_WAIT * 2 / 3, REFUSED_WAIT * 4 / 3);
        // The connections start with different addresses.
        let addresses = self.upstreams.addresses.iter().cycle().skip(self.index);
        for server in addresses {
            let begun = Instant::now();
            let Err(ended) = Box::pin(self.connect_and_carry(server)).await;
            if begun.elapsed() > STEADY {
                short.reset();
            }
            let wait = match &ended {
                UpstreamEnd::Session(NoSession::Refused { retry: false, .. }) => refused.next_wait(),
                UpstreamEnd::Session(_) | UpstreamEnd::Rules(_) | UpstreamEnd::Misspoken | UpstreamEnd::Pki(_) => {
                    short.next_wait()
                }
            };
            tracing::warn!(server, why = %ended.explain(server), ?wait, "not connected to the server");
            tokio::time::sleep(wait).await;
        }
    }

    async fn connect_and_carry(&self, server: &str) -> Result<std::convert::Infallible, UpstreamEnd> {
        let connecting = Box::pin(self.connect(server));
        let connected = tokio::time::timeout(CONNECT_LIMIT, connecting).await.map_err(|_| NoSession::Silent)?;
        let (frames, arrivals, interval) = connected?;
        let open = Open {
            streams: Streams::new(self.streams_max),
            heard: HeartbeatSet::default(),
            greetings: Greetings::default(),
        };
        tracing::info!(server, "connected to the server");
        let _open_guard = OpenGuard::new(self, open.clone());
        self.carry(frames, arrivals, interval, &open).await
    }

    async fn connect(&self, server: &str) -> Result<(Frames, Arrivals, Duration), UpstreamEnd> {
        let config = self.identity.to_server()?;
        let tcp = TcpStream::connect(server).await?;
        prepare_link(&tcp)?;
        let tcp = Counted::new(tcp);
        let counters = tcp.counters();
        let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await?;
        let (mut frames, mut arrivals): (Frames, Arrivals) = ends(framed(tls, RelayCodec::relay()), counters);
        frames.send(RelayFrame::Hello { version: env!("CARGO_PKG_VERSION").to_owned() }).await?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is an answer")]
        match arrivals.next(CONNECT_LIMIT, CONNECT_LIMIT, |_| true).await? {
            RelayFrame::Welcome { beats_interval } => {
                let interval = beats_interval.clamp(Duration::from_millis(100), BEATS_INTERVAL_MAX);
                Ok((frames, arrivals, interval))
            }
            RelayFrame::Refused { reason, retry } => Err(UpstreamEnd::refused(reason, retry)),
            _ => Err(UpstreamEnd::Misspoken),
        }
    }

    async fn carry(
        &self,
        frames: Frames,
        mut arrivals: Arrivals,
        interval: Duration,
        Open { streams, heard, .. }: &Open,
    ) -> Result<std::convert::Infallible, UpstreamEnd> {
        let heard_of = Notify::new();
        let news = (&heard_of, || self.identity.trusted());
        let listen = async {
            loop {
                let frame = arrivals.next(SILENCE_MAX, SILENCE_MAX, |_| true).await?;
                match streams.handle(frame)? {
                    None | Some(RelayFrame::Beats { .. } | RelayFrame::Unknown) => {}
                    Some(RelayFrame::Renewed { certificate_pem }) => {
                        match self.identity.renew(certificate_pem) {
                            Ok(()) => tracing::info!("certificate renewed"),
                            Err(error) => tracing::error!(%error, "cannot save renewed certificate"),
                        }
                        heard_of.notify_one();
                    }
                    Some(RelayFrame::Authorities(announced)) => {
                        match self.identity.follow(announced) {
                            Ok(()) => tracing::info!("authorities announced by the control plane"),
                            Err(error) => {
                                tracing::error!(%error, "announced authorities not accepted, keeping the current ones")
                            }
                        }
                        heard_of.notify_one();
                    }
                    Some(RelayFrame::Refused { reason, retry }) => return Err(UpstreamEnd::refused(reason, retry)),
                    Some(
                        RelayFrame::Hello { .. }
                        | RelayFrame::Welcome { .. }
                        | RelayFrame::Open { .. }
                        | RelayFrame::Data { .. }
                        | RelayFrame::Credit { .. }
                        | RelayFrame::Close { .. }
                        | RelayFrame::Renew { .. }
                        | RelayFrame::Trusted(_),
                    ) => return Err(UpstreamEnd::Misspoken),
                }
            }
        };
        tokio::select! {
            ended = listen => ended,
            ended = talk(frames, interval, streams, heard, || self.identity.renewal(), news) => ended,
        }
    }
}

/// Heartbeats and renewals take precedence over the agents' data: a busy connection must not look like one whose
/// agents are gone.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut frames: Outgoing<S, RelayFrame, RelayFrame>,
    interval: Duration,
    streams: &Streams,
    heard: &HeartbeatSet,
    renewal: impl Fn() -> Option<Vec<u8>>,
    (is_news, trusted): (&Notify, impl Fn() -> Option<Trusted>),
) -> Result<std::convert::Infallible, UpstreamEnd> {
    let mut beats = tokio::time::interval(interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewals = tokio::time::interval(RENEW_PERIOD);
    loop {
        let is_more = match streams.poll_frame() {
            Some(frame) => {
                frames.feed(frame).await?;
                true
            }
            None => {
                frames.flush().await?;
                false
            }
        };
        tokio::select! {
            biased;
            _ = beats.tick() => for frame in RelayFrame::beats(heard.take()) {
                frames.feed(frame).await?;
            },
            _ = renewals.tick() => if let Some(csr_der) = renewal() {
                frames.feed(RelayFrame::Renew { csr_der }).await?;
            },
            // What the server says about authorities and certificates is answered on the same connection.
            () = is_news.notified() => {
                if let Some(trusted) = trusted() {
                    frames.feed(RelayFrame::Trusted(trusted)).await?;
                }
                if let Some(csr_der) = renewal() {
                    frames.feed(RelayFrame::Renew { csr_der }).await?;
                }
            },
            () = std::future::ready(()), if is_more => {}
            () = streams.woken(), if !is_more => {}
        }
    }
}

/// One of the open connections until it is dropped, which also ends its streams.
struct OpenGuard<'a> {
    keeper: &'a ConnectionKeeper,
    streams: Streams,
}

impl<'a> OpenGuard<'a> {
    fn new(keeper: &'a ConnectionKeeper, open: Open) -> Self {
        let streams = open.streams.clone();
        keeper.upstreams.open.lock()[keeper.index] = Some(open);
        Self { keeper, streams }
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.keeper.upstreams.open.lock()[self.keeper.index] = None;
        self.streams.end();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_relay_that_stops_says_of_no_agent_that_it_has_left() {
        let streams = Streams::new(2);
        let open = Open { streams: streams.clone(), heard: HeartbeatSet::default(), greetings: Greetings::default() };
        let upstreams = Upstreams { addresses: Vec::new(), open: Mutex::new(vec![Some(open)]) };
        let passage = upstreams.board("key", Vec::new()).await.expect("there is room");
        while streams.poll_frame().is_some() {}

        upstreams.end();
        drop(passage);

        assert_eq!(streams.poll_frame(), None);
        assert!(upstreams.board("key", Vec::new()).now_or_never().expect("at once").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_reported_in_time_however_much_there_is_to_send() {
        const AGENTS: usize = 200;
        const PER_FRAME: Duration = Duration::from_millis(20);
        let (near, far) = tokio::io::duplex(1024);
        let near = Counted::new(near);
        let counters = near.counters();
        let (frames, _arrivals): (Outgoing<_, RelayFrame, RelayFrame>, Incoming<_, RelayFrame, RelayFrame>) =
            ends(framed(near, RelayCodec::relay()), counters);
        let (streams, heard) = (Streams::new(AGENTS), HeartbeatSet::default());
        let mut agents = Vec::new();
        for _ in 0..AGENTS {
            let mut stream = streams.open(Vec::new()).unwrap();
            stream.write_all(&[7; proctor_wire::STREAM_BUFFER_BYTES]).await.unwrap();
            agents.push(stream);
        }
        let expected = AGENTS * proctor_wire::STREAM_BUFFER_BYTES;
        let slow_server = async {
            let mut far = framed(far, RelayCodec::relay());
            let (mut data, mut beats) = (0, 0);
            while data < expected {
                #[expect(clippy::wildcard_enum_match_arm, reason = "tests: whatever is unexpected fails")]
                match far.next().await.unwrap().unwrap() {
                    RelayFrame::Data { bytes, .. } => data += bytes.len(),
                    RelayFrame::Beats { .. } => beats += 1,
                    RelayFrame::Open { .. } => {}
                    other => panic!("{other:?}"),
                }
                tokio::time::advance(PER_FRAME).await;
            }
            beats
        };

        let (begun, no_news) = (tokio::time::Instant::now(), Notify::new());
        let beats = tokio::select! {
            beats = slow_server => beats,
            ended = talk(frames, Duration::from_secs(1), &streams, &heard, || None, (&no_news, || None)) => panic!("{ended:?}"),
        };

        let seconds = begun.elapsed().as_secs();
        assert!(seconds >= 10 && beats >= seconds * 3 / 4, "{beats} reports in {seconds} s");
    }
}

//! A relay that consists of nothing but its key, and agents behind it as it sees them.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_model::{BootId, HostFacts};
use proctor_pki::{AgentKey, CommandCheck, ControlTrust, HelloTerms, ReportSeal, SessionTerms, seal_hello};
use proctor_runtime::clock;
use proctor_server::admin::{self, TokenRequest};
use proctor_wire::{
    AgentCodec, FromAgent, FromServer, MuxStream, RelayCodec, RelayFrame, Signed, Streams, encode_part,
};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::codec::Framed;

use crate::support::{Agent, World, dial, next, until};

pub(crate) const HOST: &str = "0:10.0.0.1";
pub(crate) const CHALLENGE: [u8; 32] = [7; 32];
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Upstream = Framed<TlsStream<TcpStream>, RelayCodec>;

/// A relay that has enrolled.
pub(crate) struct Relay {
    pub(crate) key: AgentKey,
    pub(crate) id: proctor_model::RelayId,
    pub(crate) certificate: String,
    pub(crate) authority: String,
}

impl Relay {
    pub(crate) async fn enrolled(world: &World, cloud: u32) -> Self {
        let request = TokenRequest::new(9, PATIENCE, Some(cloud)).unwrap().for_relays(true).unwrap();
        let token = admin::create_token(&world.store, request).await.unwrap().0;
        match enrol(world, &token, cloud).await {
            (key, FromServer::RelayEnrolled { relay, certificate_pem, authority_pem }) => {
                Self { key, id: relay, certificate: certificate_pem, authority: authority_pem }
            }
            (_, other) => panic!("{other:?}"),
        }
    }

    /// The connection, and the server's answer to its first word.
    pub(crate) async fn connect(&self, world: &World) -> (Upstream, RelayFrame) {
        let config = proctor_pki::relay_client_config(&self.authority, &self.certificate, &self.key).unwrap();
        let tcp = TcpStream::connect(world.server.link).await.unwrap();
        let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await.unwrap();
        let mut frames = Framed::new(tls, RelayCodec::relay());
        frames.send(RelayFrame::Hello { version: "test".to_owned() }).await.unwrap();
        let answer = frame(&mut frames).await.expect("an answer");
        (frames, answer)
    }

    /// Connected, and carrying whatever is on its streams.
    pub(crate) async fn carrying(&self, world: &World) -> Carrying {
        self.carrying_with_beats(world, Arc::default()).await
    }

    /// As [`Self::carrying`]; it also says every second that it has heard these, whether it has or not.
    pub(crate) async fn carrying_with_beats(&self, world: &World, heard: Heard) -> Carrying {
        let (frames, answer) = self.connect(world).await;
        assert!(matches!(answer, RelayFrame::Welcome { .. }), "{answer:?}");
        let (streams, mut tasks) = (Streams::new(16), JoinSet::new());
        tasks.spawn(pump(frames, streams.clone(), heard));
        Carrying { streams, _tasks: tasks }
    }
}

pub(crate) async fn enrol(world: &World, token: &proctor_pki::JoinToken, cloud: u32) -> (AgentKey, FromServer) {
    let key = AgentKey::generate().unwrap();
    let config = proctor_pki::enrol_config(&token.authority_fingerprint).unwrap();
    let mut frames = dial(world, config, AgentCodec::enrolment()).await;
    let (token_id, token_secret) = (token.id.clone(), token.secret.clone());
    let csr_der = key.csr_der().unwrap();
    frames.send(FromAgent::EnrolRelay { token_id, token_secret, csr_der, cloud }).await.unwrap();
    let answer = next(&mut frames).await;
    (key, answer)
}

/// Streams by their numbers.
pub(crate) type Heard = Arc<parking_lot::Mutex<Vec<u32>>>;

pub(crate) struct Carrying {
    pub(crate) streams: Streams,
    _tasks: JoinSet<()>,
}

pub(crate) async fn pump(mut frames: Upstream, streams: Streams, heard: Heard) {
    let mut beats = tokio::time::interval(Duration::from_secs(1));
    loop {
        let mut sent = Ok(());
        while let Some(frame) = streams.poll_frame() {
            sent = sent.and(frames.feed(frame).await);
        }
        sent = sent.and(SinkExt::<RelayFrame>::flush(&mut frames).await);
        let frame = tokio::select! {
            frame = frames.next() => Some(frame),
            () = streams.woken() => None,
            _ = beats.tick() => {
                let streams = heard.lock().clone();
                sent = sent.and(frames.feed(RelayFrame::Beats { streams }).await);
                None
            }
        };
        match frame {
            None if sent.is_ok() => {}
            Some(Some(Ok(frame))) => drop(streams.handle(frame).unwrap()),
            None | Some(_) => return streams.end(),
        }
    }
}

pub(crate) async fn frame(frames: &mut Upstream) -> Option<RelayFrame> {
    tokio::time::timeout(PATIENCE, frames.next()).await.expect("in time").and_then(Result::ok)
}

/// Returns when the server has closed the connection.
pub(crate) async fn until_closed(frames: &mut Upstream) {
    while frame(frames).await.is_some() {}
}

/// An agent behind a relay, as the relay sees it.
pub(crate) struct Carried {
    link: Framed<MuxStream, AgentCodec>,
    nonce: Vec<u8>,
}

impl Carried {
    /// An agent with a session.
    pub(crate) async fn connected(world: &World, carrying: &Carrying, relay: &Relay, agent: &Agent) -> Self {
        let mut carried = Self::open(carrying, certificate(agent)).await;
        let signed = carried.hello(agent, relay);
        carried.say(FromAgent::Signed(signed)).await;
        carried.welcomed(agent).await;
        until_connected(world, agent).await;
        carried
    }

    pub(crate) async fn open(carrying: &Carrying, certificate_pem: &str) -> Self {
        let mut carried = Self::board(carrying, certificate_pem);
        let Some(FromServer::Challenge { nonce }) = carried.next().await else { panic!("the server speaks first") };
        carried.nonce = nonce;
        carried
    }

    pub(crate) fn board(carrying: &Carrying, certificate_pem: &str) -> Self {
        let der = pem_to_der(certificate_pem);
        let link = Framed::new(carrying.streams.open(der).unwrap(), AgentCodec::new());
        Self { link, nonce: Vec::new() }
    }

    /// None where the stream was closed.
    pub(crate) async fn next(&mut self) -> Option<FromServer> {
        tokio::time::timeout(PATIENCE, self.link.next()).await.expect("in time").map(Result::unwrap)
    }

    /// What the agent says to a relay of this name.
    pub(crate) fn hello(&self, agent: &Agent, relay: &Relay) -> Signed {
        seal_hello(&agent.key, &relay.id, &self.nonce, hello(agent)).unwrap()
    }

    pub(crate) async fn say(&mut self, message: FromAgent) {
        self.link.send(message).await.unwrap();
    }

    /// As an honest agent: checks the welcome, settles, and returns what signs its reports.
    pub(crate) async fn welcomed(&mut self, agent: &Agent) -> ReportSeal {
        let (answer, boot) = (self.next().await.expect("an answer"), BootId::from("boot"));
        let hello = HelloTerms { boot: &boot, nonce: b"run", seen_generation: 0, seen_epoch: agent.seen_epoch };
        let Some((terms, Some(proof))) = SessionTerms::of_answer(&agent.id, &CHALLENGE, hello, &answer) else {
            panic!("a welcome with a proof: {answer:?}")
        };
        assert!(proof.signed_reports, "through a relay both directions are signed");
        let authority = &agent.certificate.as_ref().unwrap().1;
        CommandCheck::of_welcome(authority, &terms, proof, ControlTrust::default(), now()).unwrap();
        let mut reports = ReportSeal::new(&terms);
        let settled = encode_part(FromAgent::Settled { epoch: terms.epoch, recorded: true });
        let signed = reports.seal(&agent.key, vec![settled]).unwrap();
        self.say(FromAgent::Signed(signed)).await;
        reports
    }
}

pub(crate) fn hello(agent: &Agent) -> FromAgent {
    FromAgent::Hello {
        agent: agent.id.clone(),
        boot: BootId::from("boot"),
        facts: HostFacts::default(),
        seen_generation: 0,
        nonce: b"run".to_vec(),
        time_ms: None,
        seen_epoch: agent.seen_epoch,
        answers_usage: false,
        answers_logs: true,
        upgrades: false,
        challenge: Some(CHALLENGE.to_vec()),
        state: None,
    }
}

pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap()
}

pub(crate) fn pem_to_der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

pub(crate) fn certificate(agent: &Agent) -> &str {
    &agent.certificate.as_ref().unwrap().0
}

pub(crate) async fn until_connected(world: &World, agent: &Agent) {
    until("the agent is connected", || async { world.server.control.is_connected(&agent.id) }).await;
}

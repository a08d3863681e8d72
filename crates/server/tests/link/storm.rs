//! Many agents at once: who is admitted, who is told to come back later, and what is counted.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_pki::{TicketKeys, Tickets};
use proctor_runtime::clock;
use proctor_server::gateway::{self, LinkPolicy};
use proctor_wire::{FromAgent, FromServer};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{Agent, World, leave, next, until};

async fn resumed(world: &World) -> f64 {
    world.metric("proctor_link_handshakes_total{kind=\"resumed\"}").await.unwrap_or(0.0)
}

/// With tickets, as a real agent.
fn resuming(agent: &Agent) -> Arc<rustls::ClientConfig> {
    Arc::new(proctor_pki::resuming(agent.tls_config()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_tells_each_agent_when_to_come_back() {
    // The machine may be busy: nobody is cut off.
    let goodbye_limit = Duration::from_secs(60);
    let world = World::with(LinkPolicy { goodbye_limit, ..LinkPolicy::default() }).await;
    let (mut one, mut two) = (world.agent("0:127.0.0.1", "one").await, world.agent("0:127.0.0.2", "two").await);
    let mut links = [one.session(&world, "run").await, two.session(&world, "run").await];
    until("both are connected", || async { world.server.control.session_count() == 2 }).await;

    let longest = world.server.control.return_grace() / 2;
    world.end().await;

    for link in &mut links {
        let told = loop {
            match next(link).await {
                FromServer::Busy { retry_after } => break retry_after,
                FromServer::Assign { .. } | FromServer::AssignPools { .. } | FromServer::Beat => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(told <= longest, "the next server still waits for it then: {told:?}");
        assert!(!matches!(link.next().await, Some(Ok(_))), "it was the last word");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_and_admissions_are_counted() {
    let world = World::new().await;
    let mut agent = world.agent("0:127.0.0.1", "one").await;

    let mut link = agent.session(&world, "run").await;
    link.send(FromAgent::Beat).await.unwrap();

    let admitted = || world.metric("proctor_link_admissions_total{result=\"admitted\"}");
    let full = || world.metric("proctor_link_handshakes_total{kind=\"full\"}");
    until("both connections are counted", || async { admitted().await == Some(2.0) && full().await == Some(2.0) })
        .await;
    assert_eq!(world.metric("proctor_link_waiting").await, Some(0.0));
    assert!(world.metric("proctor_link_greeting_seconds").await.is_some_and(|cost| cost > 0.0));
    drop(link);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_has_left_gets_no_handshake() {
    let world = World::new().await;

    // It may be faster or slower than the server looks.
    until("one is found to have left", || async {
        let mut peer = std::net::TcpStream::connect(world.server.link).unwrap();
        peer.write_all(&[22, 3, 1, 0, 0]).unwrap();
        drop(peer);
        world.metric("proctor_link_admissions_total{result=\"left\"}").await.is_some_and(|left| left > 0.5)
    })
    .await;

    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_resumes_its_tls_session_with_a_restarted_server_as_the_same_agent() {
    let mut world = World::new().await;
    let mut agent = world.agent("0:127.0.0.1", "one").await;
    let tls = resuming(&agent);
    let (first, link) = agent.connect_with(&world, tls.clone(), "run").await.unwrap();
    agent.seen_epoch = Some(first);
    assert!(resumed(&world).await < 0.5);
    leave(&world, &agent, link).await;

    world.restart().await;
    let (second, link) = agent.connect_with(&world, tls, "run").await.unwrap();

    assert!(resumed(&world).await > 0.5);
    assert!(second > first && world.server.control.is_connected(&agent.id));
    leave(&world, &agent, link).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_agent_does_not_come_back_by_its_ticket() {
    let world = World::new().await;
    let agent = world.agent("0:127.0.0.1", "one").await;
    let tls = resuming(&agent);
    let (_, link) = agent.connect_with(&world, tls.clone(), "run").await.unwrap();
    leave(&world, &agent, link).await;
    world.store.revoke_host(&agent.host, clock::unix_millis()).await.unwrap().unwrap();

    let (reason, retry) = agent.connect_with(&world, tls, "run").await.err().unwrap();

    assert!(resumed(&world).await > 0.5);
    assert!(reason.contains("revoked") && !retry, "{reason}");
    world.end().await;
}

/// A clock that stands still.
#[derive(Debug)]
struct At(UnixTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// A handshake with such a server, for the tickets that it gives.
async fn take_tickets(server: rustls::ServerConfig, client: Arc<rustls::ClientConfig>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let server =
        async { TlsAcceptor::from(Arc::new(server)).accept(far).await.unwrap().write_all(b"!").await.unwrap() };
    let client = async {
        let mut stream = TlsConnector::from(client).connect(proctor_pki::server_name(), near).await.unwrap();
        stream.read_u8().await.unwrap();
    };
    futures::join!(server, client);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_does_not_outlive_the_certificate_that_it_is_for() {
    let world = World::new().await;
    let mut agent = world.agent("0:127.0.0.1", "one").await;
    let authority = gateway::authority(&world.store).await.unwrap();
    let now = || jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap();
    let (csr, lifetime) = (agent.key.csr_der().unwrap(), Duration::from_secs(3600));
    let pem = authority.issue_agent(&csr, &agent.id, now() - 2 * lifetime, lifetime).unwrap();
    assert!(proctor_pki::expires_at(&pem).unwrap() < now());
    agent.certificate = Some((pem, authority.certificate_pem().to_owned()));
    let tls = resuming(&agent);
    let keys = TicketKeys::from_bytes(&world.store.secret("link ticket keys").await.unwrap().unwrap()).unwrap();
    let mut earlier = proctor_pki::server_config(&authority, now()).unwrap().0;
    earlier.time_provider = Arc::new(At(UnixTime::since_unix_epoch(
        Duration::from_millis(u64::try_from(clock::unix_millis()).unwrap()) - lifetime * 3 / 2,
    )));
    take_tickets(proctor_pki::with_tickets(earlier, Arc::new(Tickets::new(&keys))), tls.clone()).await;

    let (reason, _) = agent.connect_with(&world, tls, "run").await.err().unwrap();

    assert!(resumed(&world).await > 0.5, "TLS itself does not look at it");
    assert!(reason.contains("has expired"), "{reason}");
    assert!(!world.server.control.is_connected(&agent.id));
    world.end().await;
}

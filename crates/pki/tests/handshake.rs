//! Real TLS 1.3 handshakes between both ends, over memory.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proctor_model::AgentId;
use proctor_pki::{
    AgentKey, Authority, AuthoritySecret, TicketKeys, Tickets, agent_of, enrol_config, resuming, server_config,
    server_name, session_config, with_tickets,
};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const DAY: Duration = Duration::from_hours(24);

/// What one end knows after the handshake and one byte in each direction.
#[derive(Debug)]
struct Seen {
    alpn: Option<Vec<u8>>,
    version: Option<rustls::ProtocolVersion>,
    agent: Option<AgentId>,
    is_resumed: bool,
}

#[allow(clippy::disallowed_methods, reason = "rustls verifies against the system's clock, so the tests need it")]
fn now() -> Timestamp {
    Timestamp::now()
}

fn authority() -> Authority {
    let secret: AuthoritySecret = Authority::generate(now()).expect("an authority");
    Authority::load(&secret).expect("the authority")
}

fn agent() -> AgentId {
    "agent-7".parse().expect("a legal id")
}

/// The configuration of an agent that `issuer` certified at `issued_at`, and that trusts `trusted`.
fn session(issuer: &Authority, trusted: &Authority, issued_at: Timestamp) -> ClientConfig {
    let key = AgentKey::generate().expect("a key");
    let csr = key.csr_der().expect("a request");
    let pem = issuer.issue_agent(&csr, &agent(), issued_at, DAY).expect("a certificate");
    session_config(trusted.certificate_pem(), &pem, &key).expect("a configuration")
}

/// Both results, because in TLS 1.3 a client is done before the server has verified it.
async fn handshake(
    server: impl Into<Arc<ServerConfig>>,
    client: impl Into<Arc<ClientConfig>>,
) -> (std::io::Result<Seen>, std::io::Result<()>) {
    let ((near, far), server, client) = (tokio::io::duplex(64 * 1024), server.into(), client.into());
    let server = async {
        let mut stream = TlsAcceptor::from(server).accept(far).await?;
        stream.write_all(b"!").await?;
        stream.read_u8().await?;
        let (_, connection) = stream.get_ref();
        Ok(Seen {
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            version: connection.protocol_version(),
            agent: connection.peer_certificates().map(|chain| agent_of(chain).expect("an agent")),
            is_resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        })
    };
    let client = async {
        let mut stream = TlsConnector::from(client).connect(server_name(), near).await?;
        stream.write_all(b"?").await?;
        stream.read_u8().await?;
        Ok(())
    };
    tokio::join!(server, client)
}

fn message<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    result.expect_err("the handshake fails").to_string()
}

#[tokio::test]
async fn a_session_is_mutual_and_the_server_knows_the_agent() {
    let authority = authority();
    let (server, expires_at) = server_config(&authority, now()).unwrap();

    let (seen, client) = handshake(server, session(&authority, &authority, now())).await;

    let seen = seen.unwrap();
    client.unwrap();
    assert_eq!(expires_at.as_second(), (now() + 365 * DAY).as_second());
    assert_eq!(seen.agent, Some(agent()));
    assert_eq!(seen.alpn.as_deref(), Some(&b"proctor/1"[..]));
    assert_eq!(seen.version, Some(rustls::ProtocolVersion::TLSv1_3));
}

#[tokio::test]
async fn an_enrolment_has_no_certificate_and_believes_the_pinned_authority() {
    let authority = authority();
    let (server, _) = server_config(&authority, now()).unwrap();

    let (seen, client) = handshake(server, enrol_config(&authority.fingerprint().to_uppercase()).unwrap()).await;

    let seen = seen.unwrap();
    client.unwrap();
    assert_eq!(seen.agent, None);
    assert_eq!(seen.alpn.as_deref(), Some(&b"proctor-enrol/1"[..]));
}

#[tokio::test]
async fn an_agent_of_another_authority_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let (server, _) = server_config(&ours, now()).unwrap();

    let (seen, client) = handshake(server, session(&theirs, &ours, now())).await;

    assert!(message(seen).contains("UnknownIssuer"));
    assert!(client.is_err());
}

#[tokio::test]
async fn an_agent_refuses_a_server_of_another_authority() {
    let (ours, theirs) = (authority(), authority());
    let (server, _) = server_config(&theirs, now()).unwrap();

    let (_, client) = handshake(server, session(&ours, &ours, now())).await;

    assert!(message(client).contains("UnknownIssuer"));
}

#[tokio::test]
async fn an_enrolment_with_the_pin_of_another_authority_refuses_the_server() {
    let (ours, theirs) = (authority(), authority());
    let (server, _) = server_config(&theirs, now()).unwrap();

    let (_, client) = handshake(server, enrol_config(&ours.fingerprint()).unwrap()).await;

    let message = message(client);
    assert!(
        message.contains("OtherAuthority") || message.contains("not the one that the join token names"),
        "{message}"
    );
}

#[tokio::test]
async fn a_chain_that_only_carries_the_pinned_authority_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let (mut chain, key) = theirs.issue_server(now()).unwrap();
    let (our_chain, _) = ours.issue_server(now()).unwrap();
    chain[1] = our_chain[1].clone();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    server.alpn_protocols = vec![b"proctor-enrol/1".to_vec()];

    let (_, client) = handshake(server, enrol_config(&ours.fingerprint()).unwrap()).await;

    assert!(message(client).contains("UnknownIssuer"));
}

#[tokio::test]
async fn an_expired_agent_is_refused() {
    let authority = authority();
    let (server, _) = server_config(&authority, now()).unwrap();

    let (seen, _) = handshake(server, session(&authority, &authority, now() - 3 * DAY)).await;

    assert!(message(seen).contains("expired"));
}

#[tokio::test]
async fn an_expired_server_is_refused() {
    let authority = authority();
    let (server, _) = server_config(&authority, now() - 400 * DAY).unwrap();

    let (_, client) = handshake(server, session(&authority, &authority, now())).await;

    assert!(message(client).contains("expired"));
}

/// As of a server with these keys, just started.
fn resumable(authority: &Authority, keys: &TicketKeys) -> ServerConfig {
    with_tickets(server_config(authority, now()).expect("a configuration").0, Arc::new(Tickets::new(keys)))
}

#[tokio::test]
async fn a_session_is_resumed_by_another_server_with_the_same_keys_and_names_the_same_agent() {
    let (authority, keys) = (authority(), TicketKeys::generate(now()));
    let client = Arc::new(resuming(session(&authority, &authority, now())));

    let (first, _) = handshake(resumable(&authority, &keys), client.clone()).await;
    let (second, _) = handshake(resumable(&authority, &keys), client.clone()).await;
    let (other, _) = handshake(resumable(&authority, &TicketKeys::generate(now())), client).await;

    let [first, second, other] = [first, second, other].map(|seen| seen.unwrap());
    assert_eq!([first.is_resumed, second.is_resumed, other.is_resumed], [false, true, false]);
    assert_eq!([&second.agent, &other.agent], [&Some(agent()), &Some(agent())]);
    assert_eq!(second.alpn.as_deref(), Some(&b"proctor/1"[..]));
}

#[tokio::test]
async fn attempts_that_come_to_nothing_leave_a_ticket_for_the_next() {
    let (authority, keys) = (authority(), TicketKeys::generate(now()));
    let client = Arc::new(resuming(session(&authority, &authority, now())));
    handshake(resumable(&authority, &keys), client.clone()).await.0.unwrap();

    for _ in 0..2 {
        let (near, far) = tokio::io::duplex(64 * 1024);
        drop(far);
        assert!(TlsConnector::from(client.clone()).connect(server_name(), near).await.is_err());
    }

    assert!(handshake(resumable(&authority, &keys), client).await.0.unwrap().is_resumed);
}

#[tokio::test]
async fn an_agent_that_asks_for_no_tickets_gets_none_and_another_configuration_has_none() {
    let (authority, keys) = (authority(), TicketKeys::generate(now()));
    let older = Arc::new(session(&authority, &authority, now()));
    for _ in 0..2 {
        assert!(!handshake(resumable(&authority, &keys), older.clone()).await.0.unwrap().is_resumed);
    }

    let renewed = resuming(session(&authority, &authority, now()));

    assert!(!handshake(resumable(&authority, &keys), renewed).await.0.unwrap().is_resumed);
}

#[test]
fn a_certificate_of_another_key_is_refused_at_once() {
    let authority = authority();
    let csr = AgentKey::generate().unwrap().csr_der().unwrap();
    let pem = authority.issue_agent(&csr, &agent(), now(), DAY).unwrap();

    let config = session_config(authority.certificate_pem(), &pem, &AgentKey::generate().unwrap());

    assert_eq!(config.unwrap_err().to_string(), "cannot configure TLS for a session");
}

#[test]
fn a_pin_that_is_no_fingerprint_is_refused_at_once() {
    assert!(enrol_config("abc").is_err());
}

#[test]
fn a_peer_without_an_agent_certificate_is_nobody() {
    let (chain, _) = authority().issue_server(now()).unwrap();

    assert_eq!(agent_of(&[]).unwrap_err().to_string(), "the peer presented no certificate");
    assert_eq!(agent_of(&chain).unwrap_err().to_string(), "the certificate does not name one agent");
}

//! Benchmarks the server's cost of an agent's handshake: full against resumed, in memory, in one run.
//!
//! ```text
//! cargo run --release -p proctor-pki --example handshake_cost
//! ```
//!
//! Counts only the time inside the server's half of TLS, not the store, sockets or the session that follows.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures, and whatever is unexpected ends it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use proctor_pki::{
    AgentKey, Authority, TicketKeys, Tickets, resuming, server_config, server_name, session_config, with_tickets,
};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};

const ROUNDS: u32 = 2_000;
const DAY: Duration = Duration::from_hours(24);

fn main() {
    let now = Timestamp::now();
    let authority = Authority::load(&Authority::generate(now).unwrap()).unwrap();
    let server = || server_config(&authority, now).unwrap().0;
    let tickets = Arc::new(Tickets::new(&TicketKeys::generate(now)));
    let (plain, resumable) = (Arc::new(server()), Arc::new(with_tickets(server(), tickets)));
    let key = AgentKey::generate().unwrap();
    let csr = key.csr_der().unwrap();
    let pem = authority.issue_agent(&csr, &"agent-7".parse().unwrap(), now, DAY).unwrap();
    let client = || session_config(authority.certificate_pem(), &pem, &key).unwrap();
    let (without, with) = (Arc::new(client()), Arc::new(resuming(client())));

    // Both in turn, so that other load on the machine affects both alike.
    let (mut full, mut resumed) = (Duration::ZERO, Duration::ZERO);
    handshake(&resumable, &with);
    for _ in 0..ROUNDS {
        let (kind, took) = handshake(&plain, &without);
        assert_eq!(kind, HandshakeKind::Full);
        full += took;
        let (kind, took) = handshake(&resumable, &with);
        assert_eq!(kind, HandshakeKind::Resumed);
        resumed += took;
    }

    println!("full     {:>8.1} µs", (full / ROUNDS).as_secs_f64() * 1e6);
    println!("resumed  {:>8.1} µs, with the tickets for the next times", (resumed / ROUNDS).as_secs_f64() * 1e6);
    println!("ratio    {:>8.2}", full.as_secs_f64() / resumed.as_secs_f64());
}

/// The time that the server's half took.
fn handshake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> (HandshakeKind, Duration) {
    let mut client = ClientConnection::new(client.clone(), server_name()).unwrap();
    let begun = Instant::now();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    let mut took = begun.elapsed();
    let mut wire = Vec::new();
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        wire.clear();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let (mut from_client, mut from_server) = (&wire[..], Vec::new());
        let begun = Instant::now();
        while !from_client.is_empty() {
            server.read_tls(&mut from_client).unwrap();
            server.process_new_packets().unwrap();
        }
        while server.wants_write() {
            server.write_tls(&mut from_server).unwrap();
        }
        took += begun.elapsed();
        let mut from_server = &from_server[..];
        while !from_server.is_empty() {
            client.read_tls(&mut from_server).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    (server.handshake_kind().unwrap(), took)
}

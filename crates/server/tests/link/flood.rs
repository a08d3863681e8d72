//! Known agents come back while unknown peers do their worst; silent peers are in tests/e2e/exhaustion.rs.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proctor_runtime::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::support::{World, leave, until};

/// The beginning of a ClientHello of 512 bytes.
const HALF_HELLO: [u8; 11] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

async fn from(address: Ipv4Addr, link: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((address, 0).into())?;
    socket.connect(link).await
}

/// Until the server closes it.
async fn read_on(mut stream: impl tokio::io::AsyncRead + Unpin) {
    while stream.read(&mut [0; 256]).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_with_foreign_certificates_and_half_greetings_do_not_keep_a_known_agent_off() {
    let world = World::new().await;
    let mut agent = world.agent("0:127.0.0.1", "known").await;
    let link = agent.session(&world, "run").await;
    leave(&world, &agent, link).await;
    let (attack, refused) = (Tasks::default(), Arc::new(AtomicU64::new(0)));
    for number in 1..=64 {
        let (address, link) = (Ipv4Addr::new(127, 1, 0, number), world.server.link);
        let (connector, refused) = (TlsConnector::from(Arc::new(agent.forged())), refused.clone());
        attack.spawn("foreign certificate", async move {
            loop {
                let Ok(stream) = from(address, link).await else { continue };
                if let Ok(tls) = connector.connect(proctor_pki::server_name(), stream).await {
                    read_on(tls).await;
                }
                refused.fetch_add(1, Ordering::Relaxed);
            }
        });
        attack.spawn("half greetings", async move {
            loop {
                let mut held = Vec::new();
                for _ in 0..8 {
                    let Ok(mut stream) = from(address, link).await else { continue };
                    let _ = stream.write_all(&HALF_HELLO).await;
                    held.push(stream);
                }
                for stream in held {
                    read_on(stream).await;
                }
            }
        });
    }
    let attacks = |more: u64| {
        let enough = refused.load(Ordering::Relaxed) + more;
        let refused = refused.clone();
        until("the attack goes on", move || {
            let refused = refused.load(Ordering::Relaxed);
            async move { refused >= enough }
        })
    };
    attacks(200).await;

    for _ in 0..5 {
        let link = agent.session(&world, "run").await;
        attacks(20).await;
        leave(&world, &agent, link).await;
    }

    assert!(attack.end(Duration::from_secs(60)).await);
    world.end().await;
}

//! TCP connections between our programs.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Bytes that may wait in the kernel before any of them is sent. With megabytes there, the kernel's default, a
/// socket on a slow link accepts nothing for minutes, and nobody can tell a slow peer from a dead one. Urgent
/// messages wait behind them: two seconds at 64 kbit/s.
const UNSENT_BYTES_MAX: u32 = 16 * 1024;

/// Sets up a link connection: small messages are sent at once, and the queue moves as the peer reads.
pub fn prepare_link(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    SockRef::from(tcp).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Closes the connection if the peer's kernel has not acknowledged what was sent for this long: a host that
/// vanished closes nothing, and small messages to it fit into the socket's buffer for hours.
pub fn end_unacknowledged(tcp: &TcpStream, limit: Duration) -> io::Result<()> {
    SockRef::from(tcp).set_tcp_user_timeout(Some(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_link_gives_up_what_nobody_acknowledges() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();

        end_unacknowledged(&tcp, Duration::from_secs(30)).unwrap();

        assert_eq!(SockRef::from(&tcp).tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
    }
}

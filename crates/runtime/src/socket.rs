//! TCP connections between our programs.

use std::io;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Bytes that may wait in the kernel before any of them is sent. With megabytes there, as the kernel allows by
/// itself, a socket on a slow link takes nothing for minutes, and nobody can tell a slow peer from a dead one.
const UNSENT_BYTES_MAX: u32 = 32 * 1024;

/// Sets up a connection of a link: small messages go at once, and what is written moves as the peer takes it.
pub fn prepare_link(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    SockRef::from(tcp).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

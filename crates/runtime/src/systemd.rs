//! Notifications for systemd services with `Type=notify`.
//!
//! Promised: without `NOTIFY_SOCKET` nothing happens; a message that cannot be sent is dropped, never waited for.
//! Absent: file descriptors passed by systemd.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd a state such as `READY=1`, `STOPPING=1` or `WATCHDOG=1`.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(name.as_encoded_bytes(), state) {
        tracing::debug!(%error, state, "systemd not notified");
    }
}

/// A name that begins with '@' is an abstract one.
fn send(name: &[u8], state: &str) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let address = match name.split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
        Some(_) | None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reaches_the_socket_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("proctor-test-{}", path.display());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let mut buffer = [0; 64];

        send(path.as_os_str().as_encoded_bytes(), "READY=1").unwrap();
        send(format!("@{name}").as_bytes(), "WATCHDOG=1").unwrap();

        let length = by_path.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        let length = by_name.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"WATCHDOG=1");
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error_that_nobody_waits_for() {
        let dir = tempfile::tempdir().unwrap();

        send(dir.path().join("absent").as_os_str().as_encoded_bytes(), "READY=1").unwrap_err();
    }
}

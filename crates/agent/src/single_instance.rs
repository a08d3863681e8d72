//! One agent per identity: a copy of a state directory must not act next to the original.
//!
//! Promised: of two agents with the same id in one network namespace, the second only says so and exits. The name is
//! held by the kernel and goes with the process, however it ends.
//! Absent: other namespaces and machines; there the server detects copies.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use proctor_model::AgentId;

use crate::AgentError;

/// A child that is just being started holds the name for a moment after its agent was killed.
const TAKEN_MAX: Duration = Duration::from_secs(3);
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// Held as long as the agent runs. None where another user of this machine holds the name, which must not
/// keep the agent from its work.
#[derive(Debug)]
pub(crate) struct InstanceLock(#[expect(dead_code, reason = "it is held, not used")] Option<UnixListener>);

pub(crate) async fn claim(agent: &AgentId) -> Result<InstanceLock, AgentError> {
    let failed = |source| AgentError::Claim { agent: agent.clone(), source };
    let name = SocketAddr::from_abstract_name(format!("proctor-agent/{agent}")).map_err(failed)?;
    let mut waited = Duration::ZERO;
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(listener) => return Ok(InstanceLock(Some(listener))),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some(holder) = foreign_holder(&name) {
            tracing::warn!(%agent, uid = holder, "another user of this machine holds the agent's name; ignored");
            return Ok(InstanceLock(None));
        }
        if waited >= TAKEN_MAX {
            return Err(AgentError::Cloned { agent: agent.clone() });
        }
        tokio::time::sleep(RETRY_PERIOD).await;
        waited += RETRY_PERIOD;
    }
}

/// The user who holds the name, if it is neither root nor our own.
fn foreign_holder(name: &SocketAddr) -> Option<u32> {
    let stream = UnixStream::connect_addr(name).ok()?;
    stream.set_nonblocking(true).ok()?;
    let holder = tokio::net::UnixStream::from_std(stream).ok()?.peer_cred().ok()?.uid();
    (holder != 0 && holder != rustix::process::geteuid().as_raw()).then_some(holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentId {
        AgentId::from_uuid(uuid::Uuid::new_v4())
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_agent_of_the_same_identity_is_refused_until_the_first_is_gone() {
        let (agent, other) = (agent(), agent());
        let first = claim(&agent).await.unwrap();

        let second = claim(&agent).await;
        claim(&other).await.unwrap();
        drop(first);
        let third = claim(&agent).await;

        assert!(matches!(second, Err(AgentError::Cloned { .. })), "{second:?}");
        assert!(third.is_ok());
    }
}

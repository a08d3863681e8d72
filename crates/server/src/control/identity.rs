//! Which key speaks for a host: enrolment, revocation and removal.
//!
//! Promised: revoking a key ends its session at once. The store decides; it raises the epoch with each such change,
//! so that a session that opens meanwhile is not current either.

use std::net::IpAddr;
use std::time::Duration;

use proctor_model::{AgentId, Class, Code, FieldError, HostKey, Outcome, messages};
use proctor_runtime::{chain, clock};
use proctor_store::{EnrolRefusal, Enrolment, HostRemoval, Millis, ReturnRequest, SessionRefusal, UnservedHost};

use super::{Caller, Control, Result, Session};

/// How long an operator may leave a host open to another key.
pub const REJOIN_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The end of a leave to rejoin that begins now.
pub fn rejoin_until(ttl: Duration) -> std::result::Result<Millis, FieldError> {
    if ttl.is_zero() || ttl > REJOIN_TTL_MAX {
        let days = REJOIN_TTL_MAX.as_secs() / (24 * 3600);
        return Err(FieldError::new("ttl_secs", messages::must_last_days_at_most(days)));
    }
    Ok(clock::unix_millis() + i64::try_from(ttl.as_millis()).expect("bounded by REJOIN_TTL_MAX"))
}

impl Control {
    /// Enrols, and ends the sessions of keys that lost their host by it.
    pub async fn enrol(&self, enrolment: Enrolment) -> Result<std::result::Result<(), EnrolRefusal>> {
        self.run_to_completion("enrolment", |control| async move {
            let (host, agent) = (enrolment.host, enrolment.agent.clone());
            let before = control.sites_of(vec![agent.clone()]).await?.remove(&agent).map(|site| site.key);
            let mut changed = match control.inner.store.enrol(enrolment, clock::unix_millis()).await? {
                Ok(enrolled) => enrolled.displaced,
                Err(refusal) => return Ok(Err(refusal)),
            };
            for agent in &changed {
                control.dismiss(agent, &format!("host {host} was enrolled again"));
            }
            control.end_waits_of_others(&changed, (&agent, before), &host).await;
            // A cordon belongs to the host: it ends for an agent that left, and applies to the one that came.
            changed.push(agent);
            control.inner.authorities.forget_agents(&changed);
            control.inner.cordons.read_agents(&*control.inner.store, &changed).await?;
            Ok(Ok(()))
        })
        .await
    }

    /// An operation waits for a host, not for the agent that served it: those of agents that lost this host by an enrolment,
    /// or that came to it from another one, end.
    async fn end_waits_of_others(&self, lost: &[AgentId], came: (&AgentId, Option<HostKey>), host: &HostKey) {
        let (agent, before) = came;
        let moved = before.is_some_and(|before| before != *host).then(|| agent.clone());
        let agents: Vec<AgentId> = lost.iter().cloned().chain(moved).collect();
        let ended = self.inner.dispatch.lock().end_all_waiting(&agents);
        let gone = |operation| (operation, Outcome::new(Code::AgentAbsent, messages::host_served_by_another(), false));
        self.record_all(&ended.into_iter().map(gone).collect::<Vec<_>>()).await;
    }

    /// Whether an agent with this key may have another certificate in place of one that has expired, or that `is_valid`.
    pub(crate) async fn let_back(
        &self,
        agent: &AgentId,
        key_fingerprint: &str,
        is_valid: bool,
        remote: Option<IpAddr>,
    ) -> Result<std::result::Result<(), SessionRefusal>> {
        let request = ReturnRequest {
            agent: agent.clone(),
            key_fingerprint: key_fingerprint.to_owned(),
            is_valid,
            is_served: self.inner.sessions.get(agent).is_some(),
            remote,
        };
        Ok(self.inner.store.let_back(&request, clock::unix_millis()).await?)
    }

    /// The agent has recorded the epoch of its session, or could not: then a copy of its state cannot be detected,
    /// but the agent is still of use.
    pub async fn settled(&self, session: &Session, recorded: bool) {
        let settled = match recorded {
            true => self.inner.store.settle_session(session.agent(), session.epoch()).await,
            false => Ok(true),
        };
        match settled {
            Ok(true) => session.settle(),
            Ok(false) => session.fence(),
            Err(error) => {
                tracing::warn!(agent = %session.agent(), %error, "cannot record session epoch");
                session.settle();
            }
        }
    }

    /// The host's key opens no session any more, on whichever host; those that are open end. Returns the agents that it
    /// served; None for an unknown host.
    pub async fn revoke_host(&self, host: &HostKey) -> Result<Option<Vec<AgentId>>> {
        let Some(revoked) = self.inner.store.revoke_host(host, clock::unix_millis()).await? else {
            return Ok(None);
        };
        let agents: Vec<AgentId> = revoked.into_iter().map(|(agent, _)| agent).collect();
        self.inner.authorities.forget_agents(&agents);
        for agent in &agents {
            self.dismiss(agent, "the agent's certificate was revoked");
            self.inner.presence.forget(agent);
            self.inner.clocks.forget(agent);
        }
        Ok(Some(agents))
    }

    /// The hosts whose agents have left them for others.
    pub async fn unserved_hosts(&self, caller: &Caller) -> Result<Vec<UnservedHost>> {
        caller.require(Class::Admin)?;
        Ok(self.inner.store.unserved_hosts().await?)
    }

    /// Removes the host with its registrations and pools, and ends its session and what is open there. Its processes
    /// keep running. False for an unknown host.
    pub async fn remove_host(&self, host: &HostKey) -> Result<bool> {
        let Some(removal) = self.begin_removal(host).await? else { return Ok(false) };
        // The host is not known any more, and retention deletes what is left.
        if let Err(error) = self.inner.store.finish_host_removal(&removal).await {
            tracing::warn!(%host, error = %chain(&error), "cannot delete the registrations of a removed host, retrying later");
        }
        Ok(true)
    }

    /// Ends the session of the host's agent and what is open there, before the rest is removed: that may take a while
    /// or fail, when the agent is no longer known.
    async fn begin_removal(&self, host: &HostKey) -> Result<Option<HostRemoval>> {
        let Some(removal) = self.inner.store.begin_host_removal(host).await? else { return Ok(None) };
        if let Some(agent) = &removal.agent {
            self.forget_agent(agent, host).await;
        }
        Ok(Some(removal))
    }

    /// The agent's host was removed.
    async fn forget_agent(&self, agent: &AgentId, host: &HostKey) {
        self.dismiss(agent, "the host was removed");
        self.inner.authorities.forget_agents([agent]);
        self.inner.presence.forget(agent);
        self.inner.clocks.forget(agent);
        self.inner.cordons.forget(agent).await;
        let open = self.inner.dispatch.lock().forget(agent);
        let gone = |operation| (operation, Outcome::new(Code::AgentAbsent, messages::host_removed(host), false));
        let outcomes: Vec<_> = open.into_iter().map(gone).collect();
        for batch in outcomes.chunks(super::outcomes::BATCH_MAX) {
            self.record(batch).await;
        }
    }

    /// Whether an enrolled host of cloud area 0 has this address. False if that cannot be determined.
    pub async fn is_address_of_host(&self, address: IpAddr) -> bool {
        let key = HostKey::new(0, 0, address);
        self.inner.store.sites_by_key(&[key]).await.is_ok_and(|sites| sites.into_iter().flatten().next().is_some())
    }

    fn dismiss(&self, agent: &AgentId, reason: &str) {
        if let Some(session) = self.inner.sessions.get(agent) {
            session.dismiss(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proctor_model::BootId;
    use proctor_runtime::Tasks;
    use proctor_store::conformance::{Joining, opening_of};
    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{Prune, UpkeepStore};

    use super::*;
    use crate::control::{Greeting, Retention};

    #[tokio::test]
    async fn a_session_ends_with_the_first_step_of_a_removal_whatever_becomes_of_the_others() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let store = Arc::new(SqliteStore::open(&dir.path().join("test.db")).await.unwrap());
        let Joining { host, agent, .. } = Joining::new("0:10.0.0.1", "agent-1");
        Joining::new("0:10.0.0.1", "agent-1").enrol(&*store).await;
        let control = Control::start(store.clone(), &tasks).await.unwrap();
        let greeting = Greeting::new(opening_of(&agent), BootId::from("boot"));
        let session = control.open_session(greeting).await.unwrap().unwrap();

        let begun = control.begin_removal(&host).await.unwrap();

        assert_eq!(begun.and_then(|removal| removal.agent), Some(agent));
        assert_eq!(session.dismissal().as_deref(), Some("the host was removed"));
        assert!(!control.remove_host(&host).await.unwrap(), "the host is not known any more");
        control.prune(&Retention::default(), 0).await;
        assert_eq!(store.prune(Prune::RemovedHosts).await.unwrap(), 0, "retention has finished the removal");
        tasks.shutdown().cancel();
    }
}

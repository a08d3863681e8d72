//! Hosts: join tokens, enrolment, the identity of each host, its maintenance and the epoch of its session.
//!
//! Absent: presence between sessions and heartbeats, which live in memory.

use async_trait::async_trait;
use proctor_model::{AgentId, HostKey};

use crate::{
    Cordon, EndedSession, EnrolRefusal, Enrolled, Enrolment, HostLocation, HostQuery, HostRecord, HostRemoval,
    JoinToken, JoinTokenRecord, Millis, PeerTrust, Refusal, Result, ReturnRequest, SessionOpening, SessionRefusal,
    UnservedHost,
};

/// Enrolment, hosts and their sessions.
#[async_trait]
pub trait HostStore: Send + Sync + std::fmt::Debug {
    /// Keeps the token; one that is put again keeps the count of its uses.
    async fn put_token(&self, token: JoinToken) -> Result<()>;
    /// The one that expires last comes first.
    async fn tokens(&self) -> Result<Vec<JoinTokenRecord>>;
    /// Whether it was there. Nobody enrols with it any more; hosts that did stay.
    async fn delete_token(&self, id: &str) -> Result<bool>;
    /// Whether there is a token of this id with this secret, expired or not. Changes nothing.
    async fn knows_token(&self, id: &str, secret_hash: &str) -> Result<bool>;
    /// Checks the token, uses it up once and binds the host to the agent, all or nothing, together with
    /// its audit entry. A refusal is audited too, where the token is known, and otherwise changes nothing.
    /// A repetition with the same token and key fingerprint for the same host succeeds again without a further use.
    ///
    /// A host that is known, by its address or by the agent's id, is taken over only by its own key, by a
    /// token that names it, or after [`Self::allow_rejoin`]; connected or not is no reason. It keeps its
    /// registrations and its business. Only a new host that has no business is placed in the token's.
    async fn enrol(&self, enrolment: Enrolment, now: Millis) -> Result<std::result::Result<Enrolled, EnrolRefusal>>;
    /// Lets any key that has a good token take the host over until then, or an older copy of its agent's
    /// state come back; whichever is first. None withdraws it. False for a host that is not known.
    async fn allow_rejoin(&self, host: &HostKey, until: Option<Millis>) -> Result<bool>;
    /// The host's key opens no session any more and enrols nowhere, also after the host got another key or was removed.
    /// Returns each agent that it serves, with an epoch that no session of that key reaches; None for an unknown host.
    async fn revoke_host(&self, host: &HostKey, now: Millis) -> Result<Option<Vec<(AgentId, u64)>>>;
    /// Sets the host's cordon instead of the one that it has, or ends it (None). Returns the one that it had,
    /// over or not; the outer None is a host that no agent serves.
    async fn set_cordon(&self, host: &HostKey, cordon: Option<Cordon>) -> Result<Option<Option<Cordon>>>;
    /// The host may open sessions from now on, with this key: where it enrolled with another one, nothing changes.
    /// Whether it was waiting; None for a host that no agent serves.
    /// One that asks for another certificate in place of an expired one may have it, once within a day, and again for a
    /// quarter of an hour where it has not opened a session by then.
    async fn approve_host(
        &self,
        host: &HostKey,
        key: &str,
        now: Millis,
    ) -> Result<std::result::Result<Option<bool>, Refusal>>;
    /// Whether the agent with this key may have another certificate: always while its own is valid, and else after an
    /// operator has said so. Who may not, and has not lost its host, waits from now on, unless the host is served: then
    /// this is an old copy of it. Both are audited once.
    async fn let_back(&self, request: &ReturnRequest, now: Millis) -> Result<std::result::Result<(), SessionRefusal>>;
    /// The first step of a removal: from now on the host is not known, no key opens it, and its address is free for a new
    /// one. None for an unknown host.
    async fn begin_host_removal(&self, host: &HostKey) -> Result<Option<HostRemoval>>;
    /// Deletes its registrations and pools, a slice at a time; its address stays in its business. What is left of a removal
    /// that is cut short, [`Prune::RemovedHosts`](crate::Prune::RemovedHosts) deletes.
    async fn finish_host_removal(&self, removal: &HostRemoval) -> Result<()>;
    /// Both steps. Returns the agent that served it, if any; None for an unknown host.
    async fn remove_host(&self, host: &HostKey) -> Result<Option<Option<AgentId>>> {
        let Some(removal) = self.begin_host_removal(host).await? else { return Ok(None) };
        self.finish_host_removal(&removal).await?;
        Ok(Some(removal.agent))
    }
    /// The hosts whose agents have left them for others, sorted by cloud and ip (as text).
    async fn unserved_hosts(&self) -> Result<Vec<UnservedHost>>;
    /// The matching hosts that an agent serves, sorted by cloud and ip (as text).
    async fn hosts(&self, query: &HostQuery) -> Result<Vec<HostRecord>>;
    /// By `cloud` and `ip`; the supplier is not part of a host's identity.
    async fn hosts_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostRecord>>>;
    /// By the agent's own id, or by the alias that a host was given.
    async fn hosts_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostRecord>>>;
    /// As [`Self::hosts_by_key`], only where they are.
    async fn sites_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostLocation>>>;
    /// As [`Self::hosts_by_agent`], only where they are.
    async fn sites_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostLocation>>>;
    /// Gives each host a second id that it answers to, instead of the one that it was given before.
    /// False for a host that no agent serves, and for an id that is another host's.
    async fn bind_agent_ids(&self, bindings: &[(HostKey, AgentId)]) -> Result<Vec<bool>>;
    /// Raises the session epoch of the agent, marks it online and returns the new epoch. Refused are
    /// keys that do not serve the agent's host (any more), state that is older than what
    /// [`Self::settle_session`] has recorded, and hosts that await approval; of those the facts are kept.
    async fn open_session(
        &self,
        opening: &SessionOpening,
        now: Millis,
    ) -> Result<std::result::Result<u64, SessionRefusal>>;
    /// The agent's state directory holds this epoch: from now on, state with an earlier one is a copy.
    /// False if the session is not the newest any more.
    async fn settle_session(&self, agent: &AgentId, epoch: u64) -> Result<bool>;
    /// Marks the agents offline and keeps the event of each, in one transaction. Those that have a newer
    /// session by now, and those that are bound to no host, are left out.
    async fn end_sessions(&self, ended: &[EndedSession], now: Millis) -> Result<()>;
    /// Keeps which authorities an agent or relay trusts, in place of what was kept of it; None forgets it.
    async fn keep_trust(&self, peer: &str, trust: Option<PeerTrust>) -> Result<()>;
    /// All that was kept, by peer.
    async fn trusts(&self) -> Result<Vec<(String, PeerTrust)>>;
}

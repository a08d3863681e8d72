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
    /// Stores the token; storing it again keeps its count of uses.
    async fn put_token(&self, token: JoinToken) -> Result<()>;
    /// The one that expires last comes first.
    async fn tokens(&self) -> Result<Vec<JoinTokenRecord>>;
    /// Returns whether it existed. Nobody can enrol with it any more; hosts that did so stay.
    async fn delete_token(&self, id: &str) -> Result<bool>;
    /// Whether a token with this id and secret exists, expired or not. Changes nothing.
    async fn knows_token(&self, id: &str, secret_hash: &str) -> Result<bool>;
    /// Checks the token, consumes one use and binds the host to the agent, all or nothing, together with the audit
    /// entry. A refusal is audited too if the token is known, and otherwise changes nothing. Repeating it with the
    /// same token and key fingerprint for the same host succeeds again without consuming another use.
    ///
    /// A host that is known, by its address or by the agent's id, is taken over only by its own key, by a token
    /// that names it, or after [`Self::allow_rejoin`]; whether it is connected does not matter. It keeps its
    /// registrations and its business. Only a new host without a business is placed in the token's.
    async fn enrol(&self, enrolment: Enrolment, now: Millis) -> Result<std::result::Result<Enrolled, EnrolRefusal>>;
    /// Until then, lets any key with a valid token take over the host, or an older copy of its agent's state come
    /// back, whichever is first. None withdraws this. False if the host is unknown.
    async fn allow_rejoin(&self, host: &HostKey, until: Option<Millis>) -> Result<bool>;
    /// From now on the host's key opens no session and enrols nowhere, even after the host got another key or was
    /// removed. Returns each agent that it serves, with an epoch that no session of that key can reach; None if the
    /// host is unknown.
    async fn revoke_host(&self, host: &HostKey, now: Millis) -> Result<Option<Vec<(AgentId, u64)>>>;
    /// Replaces the host's cordon, or ends it (None). Returns the previous one, expired or not; the outer None
    /// means that no agent serves the host.
    async fn set_cordon(&self, host: &HostKey, cordon: Option<Cordon>) -> Result<Option<Option<Cordon>>>;
    /// From now on the host may open sessions with this key; if it enrolled with another key, nothing changes.
    /// Returns whether it was waiting; None if no agent serves the host. A host that asks to replace an expired
    /// certificate may do so once within a day, and again within a quarter of an hour if it has not opened a session
    /// by then.
    async fn approve_host(
        &self,
        host: &HostKey,
        key: &str,
        now: Millis,
    ) -> Result<std::result::Result<Option<bool>, Refusal>>;
    /// Whether the agent with this key may get another certificate: always while its own is valid, otherwise only
    /// after an operator's approval. An agent that may not, and has not lost its host, waits for approval from now
    /// on, unless the host is served: then this is an old copy of it. Both are audited once.
    async fn let_back(&self, request: &ReturnRequest, now: Millis) -> Result<std::result::Result<(), SessionRefusal>>;
    /// The first step of a removal: from now on the host is unknown, no key opens it, and its address is free for a
    /// new one. None if the host is unknown.
    async fn begin_host_removal(&self, host: &HostKey) -> Result<Option<HostRemoval>>;
    /// Deletes its registrations and pools in slices; its address stays in its business.
    /// [`Prune::RemovedHosts`](crate::Prune::RemovedHosts) finishes a removal that was interrupted.
    async fn finish_host_removal(&self, removal: &HostRemoval) -> Result<()>;
    /// Both steps. Returns the agent that served it, if any; None for an unknown host.
    async fn remove_host(&self, host: &HostKey) -> Result<Option<Option<AgentId>>> {
        let Some(removal) = self.begin_host_removal(host).await? else { return Ok(None) };
        self.finish_host_removal(&removal).await?;
        Ok(Some(removal.agent))
    }
    /// The hosts whose agents have moved to other hosts, sorted by cloud and ip (as text).
    async fn unserved_hosts(&self) -> Result<Vec<UnservedHost>>;
    /// The matching hosts that an agent serves, sorted by cloud and ip (as text).
    async fn hosts(&self, query: &HostQuery) -> Result<Vec<HostRecord>>;
    /// By `cloud` and `ip`; the supplier is not part of a host's identity.
    async fn hosts_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostRecord>>>;
    /// By the agent's own id, or by the host's alias.
    async fn hosts_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostRecord>>>;
    /// As [`Self::hosts_by_key`], but only where they are.
    async fn sites_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostLocation>>>;
    /// As [`Self::hosts_by_agent`], but only where they are.
    async fn sites_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostLocation>>>;
    /// Sets each host's alias, a second id that it answers to, replacing the previous one. False if no agent serves
    /// the host, and if the id belongs to another host.
    async fn bind_agent_ids(&self, bindings: &[(HostKey, AgentId)]) -> Result<Vec<bool>>;
    /// Raises the agent's session epoch, marks it online and returns the new epoch. Refuses keys that do not (or no
    /// longer) serve the agent's host, state older than what [`Self::settle_session`] has recorded, and hosts that
    /// await approval; for those, the facts are stored.
    async fn open_session(
        &self,
        opening: &SessionOpening,
        now: Millis,
    ) -> Result<std::result::Result<u64, SessionRefusal>>;
    /// The agent's state directory has recorded this epoch: from now on, state with an earlier one is a copy. False
    /// if the session is no longer the newest.
    async fn settle_session(&self, agent: &AgentId, epoch: u64) -> Result<bool>;
    /// Marks the agents offline and stores the event of each, in one transaction. Skips agents that have a newer
    /// session by now and those that are bound to no host.
    async fn end_sessions(&self, ended: &[EndedSession], now: Millis) -> Result<()>;
    /// Stores which authorities an agent or relay trusts, replacing what was stored; None forgets it.
    async fn keep_trust(&self, peer: &str, trust: Option<PeerTrust>) -> Result<()>;
    /// All stored ones, by peer.
    async fn trusts(&self) -> Result<Vec<(String, PeerTrust)>>;
}

//! Enrolment, hosts and their sessions.

use async_trait::async_trait;
use proctor_model::{AgentId, HostKey};

use crate::sqlite::{SqliteStore, enrolment, followers, hosts, identity};
use crate::{
    Cordon, EndedSession, EnrolRefusal, Enrolled, Enrolment, HostLocation, HostQuery, HostRecord, HostRemoval,
    HostStore, JoinToken, JoinTokenRecord, Millis, PeerTrust, Refusal, Result, ReturnRequest, SessionOpening,
    SessionRefusal, UnservedHost,
};

/// How long an operator's approval to come back with an expired certificate is valid.
const RETURN_MAX_MS: Millis = 24 * 3600 * 1000;

const REMOVE_HOST: &str = "remove a host";

#[async_trait]
impl HostStore for SqliteStore {
    async fn put_token(&self, token: JoinToken) -> Result<()> {
        self.writer.run("keep a join token", move |c| enrolment::put_token(c, &token)).await
    }

    async fn tokens(&self) -> Result<Vec<JoinTokenRecord>> {
        self.readers.run("read the join tokens", enrolment::tokens).await
    }

    async fn delete_token(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.run("remove a join token", move |c| enrolment::delete_token(c, &id)).await
    }

    async fn knows_token(&self, id: &str, secret_hash: &str) -> Result<bool> {
        let (id, secret_hash) = (id.to_owned(), secret_hash.to_owned());
        self.readers.run("find a join token", move |c| enrolment::knows_token(c, &id, &secret_hash)).await
    }

    async fn enrol(&self, enrolment: Enrolment, now: Millis) -> Result<std::result::Result<Enrolled, EnrolRefusal>> {
        self.writer.run("enrol a host", move |c| enrolment::enrol(c, &enrolment, now)).await
    }

    async fn allow_rejoin(&self, host: &HostKey, until: Option<Millis>) -> Result<bool> {
        let host = *host;
        self.writer.run("let a host rejoin", move |c| identity::allow_rejoin(c, &host, until)).await
    }

    async fn set_cordon(&self, host: &HostKey, cordon: Option<Cordon>) -> Result<Option<Option<Cordon>>> {
        let host = *host;
        self.writer.run("set the cordon of a host", move |c| hosts::set_cordon(c, &host, cordon.as_ref())).await
    }

    async fn approve_host(
        &self,
        host: &HostKey,
        key: &str,
        now: Millis,
    ) -> Result<std::result::Result<Option<bool>, Refusal>> {
        let (host, key, until) = (*host, key.to_owned(), now.saturating_add(RETURN_MAX_MS));
        self.writer.run("approve a host", move |c| hosts::approve(c, &host, key, until)).await
    }

    async fn let_back(&self, request: &ReturnRequest, now: Millis) -> Result<std::result::Result<(), SessionRefusal>> {
        let request = request.clone();
        self.writer.run("let an agent back", move |c| identity::let_back(c, &request, now)).await
    }

    async fn revoke_host(&self, host: &HostKey, now: Millis) -> Result<Option<Vec<(AgentId, u64)>>> {
        let host = *host;
        self.writer.run("revoke a host's key", move |c| identity::revoke(c, &host, now)).await
    }

    async fn begin_host_removal(&self, host: &HostKey) -> Result<Option<HostRemoval>> {
        let host = *host;
        self.writer.run(REMOVE_HOST, move |c| identity::begin_removal(c, &host)).await
    }

    async fn finish_host_removal(&self, removal: &HostRemoval) -> Result<()> {
        let row = removal.row;
        while self.writer.run(REMOVE_HOST, move |c| identity::remove_slice(c, row)).await? > 0 {}
        Ok(())
    }

    async fn unserved_hosts(&self) -> Result<Vec<UnservedHost>> {
        self.readers.run("read the hosts without an agent", hosts::unserved).await
    }

    async fn hosts(&self, query: &HostQuery) -> Result<Vec<HostRecord>> {
        let query = query.clone();
        self.readers.run("read the hosts", move |c| hosts::list(c, &query)).await
    }

    async fn hosts_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostRecord>>> {
        let keys = keys.to_vec();
        self.readers.run("find hosts", move |c| hosts::by_key(c, &keys)).await
    }

    async fn hosts_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostRecord>>> {
        let agents = agents.to_vec();
        self.readers.run("find hosts", move |c| hosts::by_agent(c, &agents)).await
    }

    async fn sites_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostLocation>>> {
        let keys = keys.to_vec();
        self.readers.run("look up hosts", move |c| hosts::sites_by_key(c, &keys)).await
    }

    async fn sites_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostLocation>>> {
        let agents = agents.to_vec();
        self.readers.run("look up hosts", move |c| hosts::sites_by_agent(c, &agents)).await
    }

    async fn bind_agent_ids(&self, bindings: &[(HostKey, AgentId)]) -> Result<Vec<bool>> {
        let bindings = bindings.to_vec();
        self.writer.run("bind agent ids", move |c| hosts::bind_aliases(c, &bindings)).await
    }

    async fn open_session(
        &self,
        opening: &SessionOpening,
        now: Millis,
    ) -> Result<std::result::Result<u64, SessionRefusal>> {
        let opening = opening.clone();
        self.writer.run("open a session", move |c| identity::open_session(c, &opening, now)).await
    }

    async fn settle_session(&self, agent: &AgentId, epoch: u64) -> Result<bool> {
        let agent = agent.clone();
        self.writer.run("settle a session", move |c| identity::settle_session(c, &agent, epoch)).await
    }

    async fn end_sessions(&self, ended: &[EndedSession], now: Millis) -> Result<()> {
        let ended = ended.to_vec();
        self.writer.run("close a session", move |c| hosts::end_sessions(c, ended, now)).await
    }

    async fn keep_trust(&self, peer: &str, trust: Option<PeerTrust>) -> Result<()> {
        let peer = peer.to_owned();
        self.writer.run("keep whom a peer trusts", move |c| followers::keep(c, &peer, trust.as_ref())).await
    }

    async fn trusts(&self) -> Result<Vec<(String, PeerTrust)>> {
        self.readers.run("read whom peers trust", followers::all).await
    }
}

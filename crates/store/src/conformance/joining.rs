//! A host that joins with a token of its own, for tests of code that uses a store.

use proctor_model::{AgentId, HostKey};

use crate::{Enrolment, HostStore, JoinToken, Millis, SessionOpening};

/// The store compares it and never parses it.
const SECRET_HASH: &str = "hash of a test's token";

/// An agent that enrols for a host.
#[derive(Clone, Debug)]
pub struct Joining {
    pub host: HostKey,
    pub agent: AgentId,
    pub key_fingerprint: String,
    /// With a token that names the host, which also opens a known one.
    pub is_named: bool,
    pub needs_approval: bool,
    pub now: Millis,
}

impl Joining {
    /// With the key `key-AGENT`, for a host that nobody knows yet.
    pub fn new(host: &str, agent: &str) -> Self {
        Self::of(host.parse().expect("a host in a test"), agent.parse().expect("an agent id in a test"))
    }

    /// As [`Self::new`].
    pub fn of(host: HostKey, agent: AgentId) -> Self {
        let key_fingerprint = format!("key-{agent}");
        Self { host, agent, key_fingerprint, is_named: false, needs_approval: false, now: 1 }
    }

    /// Makes the token and uses it.
    pub async fn enrol(self, store: &(impl HostStore + ?Sized)) {
        let Self { host, agent, key_fingerprint, is_named, needs_approval, now } = self;
        let id = format!("token of {agent} for {host}");
        let token = JoinToken {
            id: id.clone(),
            secret_hash: SECRET_HASH.to_owned(),
            uses: 1,
            expires_at: i64::MAX,
            cloud: None,
            business: None,
            host: is_named.then_some(host),
        };
        store.put_token(token).await.expect("the token is kept");
        let enrolment = Enrolment {
            token_id: id,
            token_secret_hash: SECRET_HASH.to_owned(),
            host,
            agent,
            key_fingerprint,
            remote: None,
            needs_approval,
        };
        store.enrol(enrolment, now).await.expect("the store answers").expect("the host is let in");
    }
}

/// How an agent with the key that [`Joining::new`] gives it opens a session.
pub fn opening_of(agent: &AgentId) -> SessionOpening {
    SessionOpening::new(agent.clone(), format!("key-{agent}"))
}

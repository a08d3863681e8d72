//! Records of join tokens, enrolments and session openings.

use std::net::IpAddr;

use proctor_model::{AgentId, Classes, Event, HostFacts, HostKey};

use crate::{AuditDraft, AuditPhase, Millis};

/// Takes the place of the app in audit entries. No app can have this code: it contains a space.
pub const ENROLMENT_ACTOR: &str = "agent enrolment";
/// Refused enrolments that are audited per token, so that the holder of a token cannot fill the store.
pub const REFUSALS_AUDITED_MAX: u32 = 100;

/// Lets `uses` agents enrol until `expires_at`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub id: String,
    pub secret_hash: String,
    pub uses: u32,
    pub expires_at: Millis,
    /// The only cloud area it is valid for.
    pub cloud: Option<u32>,
    /// Business in which new hosts are placed; it must exist.
    pub business: Option<u64>,
    /// The only host it is valid for; that host may be taken over with it.
    pub host: Option<HostKey>,
}

impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinToken").field("id", &self.id).field("host", &self.host).finish_non_exhaustive()
    }
}

/// A token and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTokenRecord {
    pub token: JoinToken,
    pub used: u32,
    /// Enrolments that were refused although they presented its secret.
    pub refused: u32,
}

#[derive(Clone, Debug)]
pub struct Enrolment {
    pub token_id: String,
    pub token_secret_hash: String,
    pub host: HostKey,
    pub agent: AgentId,
    /// Fingerprint of the agent's public key: identifies a known host.
    pub key_fingerprint: String,
    /// Where the agent called from.
    pub remote: Option<IpAddr>,
    /// A new host, or one that moves to a new address, waits until an operator approves it.
    pub needs_approval: bool,
}

impl Enrolment {
    pub(crate) fn audit_entry(&self, phase: AuditPhase, outcome: String) -> AuditDraft {
        let target = format!("host {} agent {} key {}", self.host, self.agent, self.key_fingerprint);
        AuditDraft {
            phase,
            of: None,
            app: ENROLMENT_ACTOR.to_owned(),
            user: format!("join token {}", self.token_id),
            remote: self.remote,
            request_id: String::new(),
            action: "enrol".to_owned(),
            classes: Classes::default(),
            target_count: 1,
            targets: vec![target],
            outcome,
        }
    }
}

/// What an enrolment changed besides the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enrolled {
    /// Agents whose key no longer serves the host: their sessions must be closed.
    pub displaced: Vec<AgentId>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolRefusal {
    #[error(
        "the join token is unknown: check that it was copied whole and belongs to this server, or make another one \
         (proctor token create)"
    )]
    UnknownToken,
    #[error("the join token has expired: make another one (proctor token create)")]
    Expired,
    #[error("the join token has no uses left: make another one (proctor token create)")]
    UsedUp,
    #[error("the join token is only valid for cloud area {allowed}")]
    WrongCloud { allowed: u32 },
    #[error("the join token is only valid for host {allowed}")]
    WrongHost { allowed: HostKey },
    #[error(
        "the join token is for business {of_token}, but host {host} is in another business: use a token of that \
         business, or move the host first (proctor hosts place)"
    )]
    WrongBusiness { host: HostKey, of_token: u64 },
    #[error(
        "address {host} is in another business than the agent's present host: move the host first \
         (proctor hosts place)"
    )]
    MovesBusiness { host: HostKey },
    #[error(
        "host {host} is enrolled with another key: use a token for this host (proctor token create --host {host}) or \
         allow it to rejoin (proctor hosts allow-rejoin {host})"
    )]
    HostTaken { host: HostKey },
    #[error(
        "agent id {agent} belongs to another host or key: leave --agent-id out, or allow that host to rejoin \
         (proctor hosts allow-rejoin {agent})"
    )]
    AgentTaken { agent: AgentId },
    #[error("this key was revoked: remove the identity directory from the agent's state directory, then enrol again")]
    KeyRevoked,
}

/// What an agent presents when it opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOpening {
    pub agent: AgentId,
    /// Of the certificate that it presented.
    pub key_fingerprint: String,
    /// The last epoch that its state directory has recorded; None from agents that record none.
    pub seen_epoch: Option<u64>,
    pub facts: HostFacts,
    /// The cloud area of the relay that it connects through.
    pub relay_cloud: Option<u32>,
}

/// An agent that asks for another certificate in place of one that has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnRequest {
    pub agent: AgentId,
    /// Of the certificate that it presented.
    pub key_fingerprint: String,
    /// Whether that certificate is valid by the server's clock.
    pub is_valid: bool,
    /// Whether the agent has a session. What the store has of that is from before a restart of the server.
    pub is_served: bool,
    pub remote: Option<IpAddr>,
}

impl SessionOpening {
    pub fn new(agent: AgentId, key_fingerprint: impl Into<String>) -> Self {
        Self {
            agent,
            key_fingerprint: key_fingerprint.into(),
            seen_epoch: None,
            facts: HostFacts::default(),
            relay_cloud: None,
        }
    }
}

/// A closed session, or one of an earlier server that was not resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    pub agent: AgentId,
    pub epoch: u64,
    /// The event to store; None if the host has used up its event budget.
    pub event: Option<Event>,
    /// No event yet: the agent is unreachable. A later record of the same session has it.
    pub untold: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    #[error(
        "agent {agent} serves no host, or its host was removed: remove its state directory and enrol again with a \
         new join token"
    )]
    Unbound { agent: AgentId },
    #[error(
        "the key of agent {agent} was replaced by another enrolment of its host: remove the identity directory from \
         its state directory and enrol again"
    )]
    KeyReplaced { agent: AgentId },
    #[error(
        "the certificate of agent {agent} was revoked: remove the identity directory from its state directory and \
         enrol again with a token for its host"
    )]
    Revoked { agent: AgentId },
    #[error(
        "the state directory of agent {agent} is an old copy: another copy of it was connected since; run only one \
         of them, and if this is the right one, allow it on the server (proctor hosts allow-rejoin {agent})"
    )]
    StaleState { agent: AgentId },
    #[error(
        "the host of agent {agent} is in cloud area {of_host}, and the relay is of area {cloud}: give the agent the \
         relays of its own area (proctor-agent --server)"
    )]
    OtherArea { agent: AgentId, of_host: u32, cloud: u32 },
    #[error("the certificate of host {host} has expired: let it come back with `proctor hosts approve {host}`")]
    CertificateExpired { host: HostKey },
    #[error("host {host} awaits approval: approve it with `proctor hosts approve {host}`")]
    AwaitsApproval { host: HostKey },
}

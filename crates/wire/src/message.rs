//! The messages, as the rest of the code sees them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    AgentId, AgentState, BootId, Event, HostFacts, HostKey, LogQuery, LogTail, Message, Namespace, OperationId,
    OperationKind, Outcome, Pool, PoolId, ProcessKey, RelayId, Snapshot, Spec, UpgradeStep, UsageHistory, UsageRange,
};
use uuid::Uuid;

/// What an agent sends to a server.
#[derive(Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "outcomes and beats go through short queues; no box for each outcome")]
pub enum FromAgent {
    /// Requests a certificate; `agent` is the id to keep if this host had one.
    Enrol {
        token_id: String,
        token_secret: String,
        csr_der: Vec<u8>,
        agent: Option<AgentId>,
        host: HostKey,
    },
    /// As [`Self::Enrol`], by a relay, with a token for relays.
    EnrolRelay {
        token_id: String,
        token_secret: String,
        csr_der: Vec<u8>,
        cloud: u32,
    },
    /// Opens a session.
    Hello {
        agent: AgentId,
        boot: BootId,
        facts: HostFacts,
        seen_generation: u64,
        /// One per run of the agent (older agents: per session).
        nonce: Vec<u8>,
        /// The agent's clock, in Unix milliseconds; None from older agents.
        time_ms: Option<i64>,
        /// The epoch of the last session that the state directory has recorded, 0 before the first; None from older
        /// agents.
        seen_epoch: Option<u64>,
        /// Whether a [`FromServer::QueryUsage`] is answered; older agents skip it.
        answers_usage: bool,
        /// New for each session, by an agent that verifies what is signed; None from older agents.
        challenge: Option<Vec<u8>>,
        /// Whether a [`FromServer::Upgrade`] is obeyed or answered; older agents skip it.
        upgrades: bool,
        /// Whether a [`FromServer::QueryLog`] and a [`FromServer::Ping`] are answered; older agents skip both.
        answers_logs: bool,
        /// A summary of what it has; None from older agents.
        state: Option<AgentState>,
    },
    /// The first message after a welcome: the state directory has recorded the epoch of the session, or could not.
    /// Until then nothing is asked of an agent that records epochs.
    Settled {
        epoch: u64,
        recorded: bool,
    },
    Beat,
    /// Repeated until it is acknowledged.
    Outcome {
        operation: OperationId,
        outcome: Outcome,
    },
    Observed {
        observations: Vec<(ProcessKey, Snapshot)>,
    },
    /// Everything assigned up to this generation is in the agent's ledger.
    Seen {
        generation: u64,
    },
    Renew {
        csr_der: Vec<u8>,
    },
    /// Answers [`FromServer::Authorities`]; sent again whenever it changes.
    Trusted(Trusted),
    /// On the enrolment protocol: an agent whose certificate has expired asks for another one. Answered with
    /// [`FromServer::Challenge`], for which a [`Self::Renew`] is then signed.
    Return {
        certificate_der: Vec<u8>,
    },
    /// In order of their sequence; sent again on the next session until they are acknowledged.
    Events {
        events: Vec<Event>,
    },
    /// Answers a query of the server, once.
    UsageHistory {
        request: u64,
        history: UsageHistory,
    },
    /// As [`Self::UsageHistory`].
    LogTail {
        request: u64,
        tail: LogTail,
    },
    /// Answers a ping of this number.
    Pong {
        number: u64,
    },
    /// Answers a [`FromServer::Pace`]: heartbeats are sent at this interval from now on.
    Paced {
        beat_interval: Duration,
    },
    /// The agent shuts down cleanly. An older server skips it, and sees the connection close.
    Goodbye,
    Signed(Signed),
    /// Requests bytes of the build of an upgrade; one request at a time.
    FetchBuild {
        upgrade: Uuid,
        offset: u64,
        length: u32,
    },
    /// The progress of an upgrade; the last one is sent again on every session.
    UpgradeReport {
        upgrade: Uuid,
        step: UpgradeStep,
        /// Why it failed.
        reason: Message,
    },
    /// A message kind of a newer version: skip it. Never sent on purpose.
    Unknown,
}

/// What a server sends to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum FromServer {
    Enrolled {
        agent: AgentId,
        certificate_pem: String,
        authority_pem: String,
        /// The certificate of the key that signs commands; None from older servers.
        signer_der: Option<Vec<u8>>,
    },
    RelayEnrolled {
        relay: RelayId,
        certificate_pem: String,
        authority_pem: String,
    },
    /// Through a relay, before the agent's hello, which is then signed for this nonce.
    Challenge {
        nonce: Vec<u8>,
    },
    /// With `retry` false only people can undo it: an enrolling agent gives up, and an enrolled one comes back
    /// slowly (see [`crate::REFUSED_WAIT_MAX`]).
    Refused {
        reason: String,
        retry: bool,
    },
    Welcome {
        epoch: u64,
        beat_interval: Duration,
        server_time_ms: i64,
        /// For an agent that sent a challenge; None from older servers.
        proof: Option<WelcomeProof>,
        /// The server already has every process as the hello's state says: nothing needs to be reported. False from
        /// older servers.
        state_known: bool,
    },
    Busy {
        retry_after: Duration,
    },
    Operate {
        operation: OperationId,
        key: ProcessKey,
        kind: OperationKind,
        spec: Option<Arc<Spec>>,
        expires_in: Duration,
    },
    /// These outcomes are stored; the agent may drop them.
    Acknowledge {
        operations: Vec<OperationId>,
    },
    /// These operations are no longer wanted: what has not begun never runs, what runs is ended. An unknown or
    /// finished operation is not affected.
    Cancel {
        operations: Vec<OperationId>,
    },
    Assign {
        assignments: Vec<Assign>,
    },
    /// Pools with the generation in which each was set.
    AssignPools {
        pools: Vec<(u64, Pool)>,
    },
    /// What the agent has beyond these is no longer registered; see [`RegisteredPart`].
    Registered(RegisteredPart),
    /// Answers a heartbeat, so that an agent notices a server that is gone.
    Beat,
    Renewed {
        certificate_pem: String,
    },
    /// These authorities are trusted from now on, and no others. An older agent skips it.
    Authorities(Announced),
    /// Every event up to this sequence is stored; the agent may drop them.
    EventsSeen {
        up_to: u64,
    },
    /// Queries the usage of this process. To be answered with the same number, or not at all.
    QueryUsage {
        request: u64,
        key: ProcessKey,
        range: UsageRange,
    },
    /// Queries the log of this process, like [`Self::QueryUsage`].
    QueryLog {
        request: u64,
        key: ProcessKey,
        query: LogQuery,
    },
    /// Measures the round trip.
    Ping {
        number: u64,
    },
    /// The desired heartbeat interval from now on. Answered with [`FromAgent::Paced`]; an older agent skips it, and
    /// both sides keep their interval.
    Pace {
        beat_interval: Duration,
    },
    Signed(Signed),
    /// Orders an upgrade; see [`UpgradeOrder`].
    Upgrade(UpgradeOrder),
    /// Answers a [`FromAgent::FetchBuild`]; empty if there is nothing at this offset.
    BuildPart {
        upgrade: Uuid,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// An operation of a kind, or with a spec, that this version cannot parse: to be answered with the reason.
    /// Never sent on purpose.
    Unreadable {
        operation: OperationId,
        reason: String,
    },
    /// A message kind of a newer version: skip it. Never sent on purpose.
    Unknown,
}

/// The current authorities of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub authorities_pem: String,
    /// The fingerprint of the one that issues certificates.
    pub issuing: String,
}

/// Which of them an agent or a relay has on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted {
    /// Fingerprints.
    pub authorities: Vec<String>,
    /// The one of them that issued its certificate; empty where it was none.
    pub certified_by: String,
}

/// A part of the list of everything that is registered on a host. Only the complete list says what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredPart {
    /// Number of names in earlier parts; 0 begins a list.
    pub offset: u32,
    pub processes: Vec<ProcessKey>,
    pub pools: Vec<(Namespace, PoolId)>,
    pub is_last: bool,
}

/// One upgrade of an agent. The same id is the same upgrade, however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeOrder {
    pub upgrade: Uuid,
    pub version: String,
    pub arch: String,
    pub sha256: [u8; 32],
    pub size: u64,
    pub allow_downgrade: bool,
    /// How long the new version has to prove itself.
    pub health_deadline: Duration,
}

/// Messages of one direction, encoded by [`crate::encode_part`], with their author's signature. What the signature
/// covers, and whether it is valid, is not decided in this crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signed {
    pub sequence: u64,
    pub messages: Vec<Vec<u8>>,
    pub signature: Vec<u8>,
    /// The index of these messages among the leaves of the tree whose root was signed.
    pub leaf: u32,
    /// Their siblings in that tree, from the leaf up; empty if they are all of it.
    pub path: Vec<[u8; 32]>,
    /// The certificate of the signing key, if it has changed.
    pub signer_der: Option<Vec<u8>>,
}

/// Proves that a welcome comes from the agent's own control plane, and belongs to this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WelcomeProof {
    pub control_epoch: u64,
    /// Whether the agent must sign what it reports.
    pub signed_reports: bool,
    pub signer_der: Vec<u8>,
    pub signature: Vec<u8>,
}

/// The desired state of one process from `generation` on; no spec means that it is no longer registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Assign {
    pub generation: u64,
    pub key: ProcessKey,
    pub spec: Option<Arc<Spec>>,
    pub managed: bool,
    /// Unix seconds.
    pub registered_at: i64,
}

impl fmt::Debug for FromAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrol { token_id, token_secret: _, csr_der: _, agent, host } => f
                .debug_struct("Enrol")
                .field("token_id", token_id)
                .field("agent", agent)
                .field("host", host)
                .finish_non_exhaustive(),
            Self::EnrolRelay { token_id, token_secret: _, csr_der: _, cloud } => {
                f.debug_struct("EnrolRelay").field("token_id", token_id).field("cloud", cloud).finish_non_exhaustive()
            }
            Self::Hello {
                agent,
                boot,
                facts,
                seen_generation,
                nonce,
                time_ms,
                seen_epoch,
                answers_usage,
                challenge,
                upgrades,
                answers_logs,
                state,
            } => f
                .debug_struct("Hello")
                .field("agent", agent)
                .field("boot", boot)
                .field("facts", facts)
                .field("seen_generation", seen_generation)
                .field("nonce", nonce)
                .field("time_ms", time_ms)
                .field("seen_epoch", seen_epoch)
                .field("answers_usage", answers_usage)
                .field("challenge", challenge)
                .field("upgrades", upgrades)
                .field("answers_logs", answers_logs)
                .field("state", state)
                .finish(),
            Self::Settled { epoch, recorded } => {
                f.debug_struct("Settled").field("epoch", epoch).field("recorded", recorded).finish()
            }
            Self::Beat => f.write_str("Beat"),
            Self::Outcome { operation, outcome } => {
                f.debug_struct("Outcome").field("operation", operation).field("outcome", outcome).finish()
            }
            Self::Observed { observations } => f.debug_struct("Observed").field("observations", observations).finish(),
            Self::Seen { generation } => f.debug_struct("Seen").field("generation", generation).finish(),
            Self::Renew { csr_der } => f.debug_struct("Renew").field("csr_der", csr_der).finish(),
            Self::Trusted(trusted) => f.debug_tuple("Trusted").field(trusted).finish(),
            Self::Return { certificate_der } => {
                f.debug_struct("Return").field("certificate_der", certificate_der).finish()
            }
            Self::Events { events } => f.debug_struct("Events").field("events", events).finish(),
            Self::UsageHistory { request, history } => {
                f.debug_struct("UsageHistory").field("request", request).field("history", history).finish()
            }
            // The contents of a process's log do not belong in ours.
            Self::LogTail { request, tail } => f
                .debug_struct("LogTail")
                .field("request", request)
                .field("state", &tail.state)
                .field("bytes", &tail.bytes.len())
                .finish_non_exhaustive(),
            Self::Pong { number } => f.debug_struct("Pong").field("number", number).finish(),
            Self::Paced { beat_interval } => f.debug_struct("Paced").field("beat_interval", beat_interval).finish(),
            Self::Goodbye => f.write_str("Goodbye"),
            Self::Signed(signed) => f.debug_tuple("Signed").field(signed).finish(),
            Self::FetchBuild { upgrade, offset, length } => f
                .debug_struct("FetchBuild")
                .field("upgrade", upgrade)
                .field("offset", offset)
                .field("length", length)
                .finish(),
            Self::UpgradeReport { upgrade, step, reason } => f
                .debug_struct("UpgradeReport")
                .field("upgrade", upgrade)
                .field("step", step)
                .field("reason", reason)
                .finish(),
            Self::Unknown => f.write_str("Unknown"),
        }
    }
}

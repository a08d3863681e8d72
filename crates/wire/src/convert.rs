//! Conversions of whole messages.

use std::time::Duration;

use proctor_model::{
    AgentState, Code, Event, EventKind, Namespace, OperationId, Outcome, PoolId, ProcessKey, StateHash, messages,
};

use crate::message::{Announced, Assign, FromAgent, FromServer, RegisteredPart, Signed, Trusted, WelcomeProof};
use crate::proto::{from_agent, from_server};
use crate::signed::{signed_from, signed_to};
use crate::value::{
    Skipped, agent_id, boot_id, bounded, each, kind, millis, number_of_kind, parsed, reason_text, relay_id, required,
    short, spec, spec_json,
};
use crate::{WireError, log, proto, upgrade, usage};

/// Ample for a certificate request or a certificate.
pub(crate) const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;
/// One, or two during a rotation.
const AUTHORITIES_MAX: usize = 4;
const NONCE_BYTES_MAX: usize = 256;
/// Of every algorithm that keys may have.
pub(crate) const SIGNATURE_BYTES_MAX: usize = 256;

/// A message of one direction and its form on the wire.
pub trait LinkMessage: Clone {
    type Proto: prost::Message + Default;

    fn into_proto(self) -> Self::Proto;

    /// Reports what it left out.
    fn from_proto(message: Self::Proto, skipped: &mut Option<Skipped>) -> Result<Self, WireError>;

    /// The messages inside, if it is a signed one.
    fn signed(&self) -> Option<&Signed>;
}

impl LinkMessage for FromAgent {
    type Proto = proto::FromAgent;

    fn into_proto(self) -> proto::FromAgent {
        use from_agent::Kind;
        let kind = match self {
            Self::Enrol { token_id, token_secret, csr_der, agent, host } => Kind::Enrol(proto::Enrol {
                token_id,
                token_secret,
                csr_der,
                agent: agent.map(Into::into),
                host: Some(host.into()),
            }),
            Self::EnrolRelay { token_id, token_secret, csr_der, cloud } => {
                Kind::EnrolRelay(proto::EnrolRelay { token_id, token_secret, csr_der, cloud })
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
            } => Kind::Hello(proto::Hello {
                agent: agent.into(),
                boot: boot.as_str().to_owned(),
                facts: Some(facts.into()),
                seen_generation,
                nonce,
                time_ms,
                seen_epoch,
                answers_usage,
                challenge,
                upgrades,
                answers_logs,
                assigned_hash: state.map(|state| state.assigned.as_bytes().to_vec()),
                observed_hash: state.map(|state| state.observed.as_bytes().to_vec()),
            }),
            Self::Settled { epoch, recorded } => Kind::Settled(proto::Settled { epoch, recorded }),
            Self::Beat => Kind::Beat(proto::Beat {}),
            Self::Outcome { operation, outcome } => Kind::Outcome(proto::OperationOutcome {
                operation: Some(operation.into()),
                outcome: Some(outcome.into()),
            }),
            Self::Observed { observations } => Kind::Observed(proto::Observed {
                observations: observations
                    .into_iter()
                    .map(|(key, snapshot)| proto::Observation {
                        key: Some(key.into()),
                        snapshot: Some(snapshot.into()),
                    })
                    .collect(),
            }),
            Self::Seen { generation } => Kind::Seen(proto::Seen { generation }),
            Self::Renew { csr_der } => Kind::Renew(proto::Renew { csr_der }),
            Self::Trusted(Trusted { authorities, certified_by }) => {
                Kind::Trusted(proto::Trusted { authorities, certified_by })
            }
            Self::Return { certificate_der } => Kind::Return(proto::Return { certificate_der }),
            Self::Events { events } => {
                Kind::Events(proto::Events { events: events.into_iter().map(Into::into).collect() })
            }
            Self::UsageHistory { request, history } => Kind::UsageHistory(usage::history_to(request, history)),
            Self::LogTail { request, tail } => Kind::LogTail(log::tail_to(request, tail)),
            Self::Pong { number } => Kind::Pong(proto::Pong { number }),
            Self::Paced { beat_interval } => Kind::Paced(proto::Paced { beat_interval_ms: millis(beat_interval) }),
            Self::Goodbye => Kind::Goodbye(proto::Goodbye {}),
            Self::Signed(signed) => Kind::Signed(signed_to(signed)),
            Self::FetchBuild { upgrade, offset, length } => {
                Kind::FetchBuild(proto::FetchBuild { upgrade: upgrade.as_bytes().to_vec(), offset, length })
            }
            Self::UpgradeReport { upgrade, step, reason } => {
                Kind::UpgradeReport(upgrade::report_to(upgrade, step, reason))
            }
            Self::Unknown => return proto::FromAgent { kind: None },
        };
        proto::FromAgent { kind: Some(kind) }
    }

    fn from_proto(message: proto::FromAgent, skipped: &mut Option<Skipped>) -> Result<Self, WireError> {
        use from_agent::Kind;
        Ok(match message.kind {
            None => Self::Unknown,
            Some(Kind::Enrol(enrol)) => enrol_from(enrol)?,
            Some(Kind::EnrolRelay(enrol)) => Self::EnrolRelay {
                token_id: short("token id", enrol.token_id)?,
                token_secret: short("token secret", enrol.token_secret)?,
                csr_der: certificate_request(enrol.csr_der)?,
                cloud: enrol.cloud,
            },
            Some(Kind::Hello(hello)) => hello_from(hello)?,
            Some(Kind::Settled(proto::Settled { epoch, recorded })) => Self::Settled { epoch, recorded },
            Some(Kind::Beat(proto::Beat {})) => Self::Beat,
            Some(Kind::Outcome(proto::OperationOutcome { operation, outcome })) => {
                let outcome = required("outcome", outcome).and_then(Outcome::try_from);
                Self::Outcome {
                    operation: required("operation", operation)?.try_into()?,
                    outcome: outcome.unwrap_or_else(|error| {
                        Outcome::new(Code::CommandFailed, messages::outcome_unreadable(error), false)
                    }),
                }
            }
            Some(Kind::Observed(proto::Observed { observations })) => {
                Self::Observed { observations: each("observation", observations, skipped, observation_from) }
            }
            Some(Kind::Seen(proto::Seen { generation })) => Self::Seen { generation },
            Some(Kind::Renew(proto::Renew { csr_der })) => Self::Renew { csr_der: certificate_request(csr_der)? },
            Some(Kind::Trusted(proto::Trusted { authorities, certified_by })) => {
                Self::Trusted(trusted(authorities, certified_by)?)
            }
            Some(Kind::Return(proto::Return { certificate_der })) => {
                Self::Return { certificate_der: bounded("certificate", certificate_der, CERTIFICATE_BYTES_MAX)? }
            }
            Some(Kind::Events(proto::Events { events })) => {
                Self::Events { events: each("event", events, skipped, event_from) }
            }
            Some(Kind::UsageHistory(history)) => {
                Self::UsageHistory { request: history.request, history: usage::history_from(history, skipped) }
            }
            Some(Kind::LogTail(tail)) => Self::LogTail { request: tail.request, tail: log::tail_from(tail) },
            Some(Kind::Pong(proto::Pong { number })) => Self::Pong { number },
            Some(Kind::Paced(proto::Paced { beat_interval_ms })) => {
                Self::Paced { beat_interval: Duration::from_millis(beat_interval_ms) }
            }
            Some(Kind::Goodbye(proto::Goodbye {})) => Self::Goodbye,
            Some(Kind::Signed(signed)) => Self::Signed(signed_from(signed)?),
            Some(Kind::FetchBuild(fetch)) => upgrade::fetch_from(&fetch),
            Some(Kind::UpgradeReport(report)) => upgrade::report_from(report),
        })
    }

    fn signed(&self) -> Option<&Signed> {
        if let Self::Signed(signed) = self { Some(signed) } else { None }
    }
}

fn enrol_from(enrol: proto::Enrol) -> Result<FromAgent, WireError> {
    Ok(FromAgent::Enrol {
        token_id: short("token id", enrol.token_id)?,
        token_secret: short("token secret", enrol.token_secret)?,
        csr_der: certificate_request(enrol.csr_der)?,
        agent: enrol.agent.map(agent_id).transpose()?,
        host: required("host", enrol.host)?.try_into()?,
    })
}

fn hello_from(hello: proto::Hello) -> Result<FromAgent, WireError> {
    Ok(FromAgent::Hello {
        agent: agent_id(hello.agent)?,
        boot: boot_id(hello.boot)?,
        facts: required("facts", hello.facts)?.try_into()?,
        seen_generation: hello.seen_generation,
        nonce: bounded("nonce", hello.nonce, NONCE_BYTES_MAX)?,
        time_ms: hello.time_ms,
        seen_epoch: hello.seen_epoch,
        answers_usage: hello.answers_usage,
        challenge: hello.challenge.map(|challenge| bounded("challenge", challenge, NONCE_BYTES_MAX)).transpose()?,
        upgrades: hello.upgrades,
        answers_logs: hello.answers_logs,
        state: state_from(hello.assigned_hash, hello.observed_hash),
    })
}

/// A hash of another length is from another version; there is nothing to compare.
fn state_from(assigned: Option<Vec<u8>>, observed: Option<Vec<u8>>) -> Option<AgentState> {
    let assigned = StateHash::of_bytes(&assigned?)?;
    Some(AgentState { assigned, observed: StateHash::of_bytes(&observed?)? })
}

fn observation_from(observation: proto::Observation) -> Result<(ProcessKey, proctor_model::Snapshot), WireError> {
    Ok((required("process key", observation.key)?.try_into()?, required("snapshot", observation.snapshot)?.try_into()?))
}

pub(crate) fn certificate_request(der: Vec<u8>) -> Result<Vec<u8>, WireError> {
    bounded("certificate request", der, CERTIFICATE_BYTES_MAX)
}

pub(crate) fn certificate(pem: String) -> Result<String, WireError> {
    bounded("certificate", pem, CERTIFICATE_BYTES_MAX)
}

pub(crate) fn announced(authorities_pem: String, issuing: String) -> Result<Announced, WireError> {
    Ok(Announced { authorities_pem: certificate(authorities_pem)?, issuing: short("fingerprint", issuing)? })
}

pub(crate) fn trusted(authorities: Vec<String>, certified_by: String) -> Result<Trusted, WireError> {
    if authorities.len() > AUTHORITIES_MAX {
        return Err(WireError::TooManyItems { items_max: AUTHORITIES_MAX });
    }
    let authorities = authorities.into_iter().map(|authority| short("fingerprint", authority));
    let authorities = authorities.collect::<Result<_, _>>()?;
    Ok(Trusted { authorities, certified_by: short("fingerprint", certified_by)? })
}

pub(crate) fn signer_certificate(der: Vec<u8>) -> Result<Vec<u8>, WireError> {
    bounded("signing certificate", der, CERTIFICATE_BYTES_MAX)
}

fn proof_to(proof: WelcomeProof) -> proto::WelcomeProof {
    let WelcomeProof { control_epoch, signed_reports, signer_der, signature } = proof;
    proto::WelcomeProof { control_epoch, signed_reports, signer_der, signature }
}

fn proof_from(proof: proto::WelcomeProof) -> Result<WelcomeProof, WireError> {
    Ok(WelcomeProof {
        control_epoch: proof.control_epoch,
        signed_reports: proof.signed_reports,
        signer_der: signer_certificate(proof.signer_der)?,
        signature: bounded("signature", proof.signature, SIGNATURE_BYTES_MAX)?,
    })
}

impl LinkMessage for FromServer {
    type Proto = proto::FromServer;

    fn into_proto(self) -> proto::FromServer {
        use from_server::Kind;
        let kind = match self {
            Self::Enrolled { agent, certificate_pem, authority_pem, signer_der } => {
                Kind::Enrolled(proto::Enrolled { agent: agent.into(), certificate_pem, authority_pem, signer_der })
            }
            Self::RelayEnrolled { relay, certificate_pem, authority_pem } => {
                Kind::RelayEnrolled(proto::RelayEnrolled { relay: relay.into(), certificate_pem, authority_pem })
            }
            Self::Challenge { nonce } => Kind::Challenge(proto::Challenge { nonce }),
            Self::Refused { reason, retry } => Kind::Refused(proto::Refused { reason, retry }),
            Self::Welcome { epoch, beat_interval, server_time_ms, proof, state_known } => {
                Kind::Welcome(proto::Welcome {
                    epoch,
                    beat_interval_ms: millis(beat_interval),
                    server_time_ms,
                    proof: proof.map(proof_to),
                    state_known,
                })
            }
            Self::Busy { retry_after } => Kind::Busy(proto::Busy { retry_after_ms: millis(retry_after) }),
            Self::Operate { operation, key, kind, spec, expires_in } => Kind::Operate(proto::Operate {
                operation: Some(operation.into()),
                key: Some(key.into()),
                kind: number_of_kind(kind),
                spec_json: spec_json(spec),
                expires_in_ms: millis(expires_in),
            }),
            Self::Acknowledge { operations } => {
                Kind::Acknowledge(proto::Acknowledge { operations: operations.into_iter().map(Into::into).collect() })
            }
            Self::Cancel { operations } => {
                Kind::Cancel(proto::Cancel { operations: operations.into_iter().map(Into::into).collect() })
            }
            Self::Assign { assignments } => {
                Kind::Assign(proto::Assign { assignments: assignments.into_iter().map(Into::into).collect() })
            }
            Self::AssignPools { pools } => Kind::AssignPools(proto::AssignPools {
                pools: pools
                    .into_iter()
                    .map(|(generation, pool)| proto::PoolAssignment { generation, pool: Some(pool.into()) })
                    .collect(),
            }),
            Self::Registered(part) => Kind::Registered(registered_to(part)),
            Self::Beat => Kind::Beat(proto::Beat {}),
            Self::Renewed { certificate_pem } => Kind::Renewed(proto::Renewed { certificate_pem }),
            Self::Authorities(Announced { authorities_pem, issuing }) => {
                Kind::Authorities(proto::Authorities { authorities_pem, issuing })
            }
            Self::EventsSeen { up_to } => Kind::EventsSeen(proto::EventsSeen { up_to }),
            Self::QueryUsage { request, key, range } => Kind::QueryUsage(proto::QueryUsage {
                request,
                key: Some(key.into()),
                range: usage::number_of_range(range),
            }),
            Self::QueryLog { request, key, query } => Kind::QueryLog(log::query_to(request, key, query)),
            Self::Ping { number } => Kind::Ping(proto::Ping { number }),
            Self::Pace { beat_interval } => Kind::Pace(proto::Pace { beat_interval_ms: millis(beat_interval) }),
            Self::Signed(signed) => Kind::Signed(signed_to(signed)),
            Self::Upgrade(order) => Kind::Upgrade(upgrade::order_to(order)),
            Self::BuildPart { upgrade, offset, bytes } => {
                Kind::BuildPart(proto::BuildPart { upgrade: upgrade.as_bytes().to_vec(), offset, bytes })
            }
            // Never sent on purpose.
            Self::Unreadable { .. } | Self::Unknown => return proto::FromServer { kind: None },
        };
        proto::FromServer { kind: Some(kind) }
    }

    fn from_proto(message: proto::FromServer, skipped: &mut Option<Skipped>) -> Result<Self, WireError> {
        use from_server::Kind;
        Ok(match message.kind {
            None => Self::Unknown,
            Some(Kind::Enrolled(enrolled)) => Self::Enrolled {
                agent: agent_id(enrolled.agent)?,
                certificate_pem: certificate(enrolled.certificate_pem)?,
                authority_pem: certificate(enrolled.authority_pem)?,
                signer_der: enrolled.signer_der.map(signer_certificate).transpose()?,
            },
            Some(Kind::RelayEnrolled(enrolled)) => Self::RelayEnrolled {
                relay: relay_id(enrolled.relay)?,
                certificate_pem: certificate(enrolled.certificate_pem)?,
                authority_pem: certificate(enrolled.authority_pem)?,
            },
            Some(Kind::Challenge(challenge)) => {
                Self::Challenge { nonce: bounded("challenge", challenge.nonce, NONCE_BYTES_MAX)? }
            }
            Some(Kind::Refused(proto::Refused { reason, retry })) => {
                Self::Refused { reason: reason_text(reason), retry }
            }
            Some(Kind::Welcome(welcome)) => Self::Welcome {
                epoch: welcome.epoch,
                beat_interval: Duration::from_millis(welcome.beat_interval_ms),
                server_time_ms: welcome.server_time_ms,
                proof: welcome.proof.map(proof_from).transpose()?,
                state_known: welcome.state_known,
            },
            Some(Kind::Busy(busy)) => Self::Busy { retry_after: Duration::from_millis(busy.retry_after_ms) },
            Some(Kind::Operate(operate)) => operate_from(operate)?,
            Some(Kind::Acknowledge(proto::Acknowledge { operations })) => {
                Self::Acknowledge { operations: each("operation", operations, skipped, OperationId::try_from) }
            }
            Some(Kind::Cancel(proto::Cancel { operations })) => {
                Self::Cancel { operations: each("operation", operations, skipped, OperationId::try_from) }
            }
            Some(Kind::Assign(proto::Assign { assignments })) => {
                Self::Assign { assignments: each("assignment", assignments, skipped, Assign::try_from) }
            }
            Some(Kind::AssignPools(proto::AssignPools { pools })) => {
                Self::AssignPools { pools: each("pool", pools, skipped, pool_from) }
            }
            // An unreadable name must not look like a missing one: the list then has a gap.
            Some(Kind::Registered(part)) => registered_from(part).map_or(Self::Unknown, Self::Registered),
            Some(Kind::Beat(proto::Beat {})) => Self::Beat,
            Some(Kind::Renewed(renewed)) => Self::Renewed { certificate_pem: certificate(renewed.certificate_pem)? },
            Some(Kind::Authorities(proto::Authorities { authorities_pem, issuing })) => {
                Self::Authorities(announced(authorities_pem, issuing)?)
            }
            Some(Kind::EventsSeen(proto::EventsSeen { up_to })) => Self::EventsSeen { up_to },
            Some(Kind::QueryUsage(query)) => query_from(query),
            Some(Kind::QueryLog(query)) => log::query_from(query),
            Some(Kind::Ping(proto::Ping { number })) => Self::Ping { number },
            Some(Kind::Pace(proto::Pace { beat_interval_ms })) => {
                Self::Pace { beat_interval: Duration::from_millis(beat_interval_ms) }
            }
            Some(Kind::Signed(signed)) => Self::Signed(signed_from(signed)?),
            Some(Kind::Upgrade(order)) => upgrade::order_from(order),
            Some(Kind::BuildPart(part)) => upgrade::part_from(part)?,
        })
    }

    fn signed(&self) -> Option<&Signed> {
        if let Self::Signed(signed) = self { Some(signed) } else { None }
    }
}

/// A query that cannot be parsed, perhaps of a newer server, is skipped: whoever asked waits for a limited time.
fn query_from(query: proto::QueryUsage) -> FromServer {
    let request = query.request;
    let understood = || -> Result<FromServer, WireError> {
        let key = required("process key", query.key)?.try_into()?;
        Ok(FromServer::QueryUsage { request, key, range: usage::range(query.range)? })
    };
    understood().unwrap_or(FromServer::Unknown)
}

/// An operation that cannot be parsed is passed on as such, so that whoever requested it is told.
fn operate_from(operate: proto::Operate) -> Result<FromServer, WireError> {
    let operation = required("operation", operate.operation)?.try_into()?;
    let understood = || {
        Ok(FromServer::Operate {
            operation,
            key: required("process key", operate.key)?.try_into()?,
            kind: kind(operate.kind)?,
            spec: spec(operate.spec_json)?,
            expires_in: Duration::from_millis(operate.expires_in_ms),
        })
    };
    Ok(understood().unwrap_or_else(|error: WireError| FromServer::Unreadable { operation, reason: reason(&error) }))
}

fn reason(error: &WireError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// An event that cannot be parsed keeps its number, so that the agent knows it was received.
fn event_from(event: proto::Event) -> Result<Event, WireError> {
    let (sequence, at) = (event.sequence, event.at);
    Ok(Event::try_from(event).unwrap_or_else(|error| {
        Event {
            sequence,
            at,
            process: None,
            proc_name: String::new(),
            report_id: None,
            kind: EventKind::EventsDropped,
            content: messages::event_unreadable(sequence, reason(&error)),
            details: [("count".to_owned(), "1".to_owned())].into(),
        }
        .fitted()
    }))
}

fn registered_to(part: RegisteredPart) -> proto::Registered {
    let RegisteredPart { offset, processes, pools, is_last } = part;
    let name = |(namespace, id): (Namespace, PoolId)| proto::PoolName { namespace: namespace.into(), id: id.into() };
    proto::Registered {
        offset,
        processes: processes.into_iter().map(Into::into).collect(),
        pools: pools.into_iter().map(name).collect(),
        last: is_last,
    }
}

fn registered_from(part: proto::Registered) -> Result<RegisteredPart, WireError> {
    let proto::Registered { offset, processes, pools, last } = part;
    let name = |name: proto::PoolName| Ok((parsed("pool namespace", name.namespace)?, parsed("pool id", name.id)?));
    Ok(RegisteredPart {
        offset,
        processes: processes.into_iter().map(ProcessKey::try_from).collect::<Result<_, _>>()?,
        pools: pools.into_iter().map(name).collect::<Result<_, WireError>>()?,
        is_last: last,
    })
}

fn pool_from(assignment: proto::PoolAssignment) -> Result<(u64, proctor_model::Pool), WireError> {
    Ok((assignment.generation, required("pool", assignment.pool)?.try_into()?))
}

impl From<Assign> for proto::Assignment {
    fn from(assign: Assign) -> Self {
        Self {
            generation: assign.generation,
            key: Some(assign.key.into()),
            spec_json: spec_json(assign.spec),
            managed: assign.managed,
            registered_at: assign.registered_at,
        }
    }
}

impl TryFrom<proto::Assignment> for Assign {
    type Error = WireError;
    fn try_from(assignment: proto::Assignment) -> Result<Self, WireError> {
        Ok(Self {
            generation: assignment.generation,
            key: required("process key", assignment.key)?.try_into()?,
            spec: spec(assignment.spec_json)?,
            managed: assignment.managed,
            registered_at: assignment.registered_at,
        })
    }
}

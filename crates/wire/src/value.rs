//! Conversions of values inside messages.
//!
//! From the wire, every text is parsed, and free text that a server stores for every host is bounded here. Towards
//! the wire nothing fails: a number that is not finite is sent as 0, because the peer would end the session over
//! it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    AgentId, BootId, Code, FieldError, HostFacts, HostKey, LABELS_MAX, Message, OperationId, OperationKind, Outcome,
    Percent, Phase, Phrase, Pool, PoolLimits, ProcessKey, RelayId, SPEC_BYTES_MAX, Sender, Snapshot, Spec, Usage,
    Weight,
};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::spec_text::{spec_of_text, spec_text};
use crate::{WireError, proto};

/// Host names, versions, ids: no honest one comes close.
const TEXT_BYTES_MAX: usize = 1024;

pub(crate) fn required<T>(what: &'static str, value: Option<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Missing { what })
}

/// Items of a message that could not be parsed and were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub what: &'static str,
    pub count: u64,
    /// What was wrong with the first of them.
    pub first: String,
}

/// Those that can be parsed. One that cannot, perhaps of a newer peer, costs only itself; the reader of the link
/// logs it, because only it knows the peer and how much the log can take.
pub(crate) fn each<P, T>(
    what: &'static str,
    items: Vec<P>,
    skipped: &mut Option<Skipped>,
    convert: impl Fn(P) -> Result<T, WireError>,
) -> Vec<T> {
    let mut skip = |error: WireError| {
        skipped.get_or_insert_with(|| Skipped { what, count: 0, first: error.to_string() }).count += 1;
    };
    items.into_iter().filter_map(|item| convert(item).map_err(&mut skip).ok()).collect()
}

pub(crate) fn bounded<T: AsRef<[u8]>>(what: &'static str, value: T, bytes_max: usize) -> Result<T, WireError> {
    if value.as_ref().len() > bytes_max { Err(WireError::TooLong { what, bytes_max }) } else { Ok(value) }
}

pub(crate) fn short(what: &'static str, text: String) -> Result<String, WireError> {
    bounded(what, text, TEXT_BYTES_MAX)
}

/// Why a peer refuses: unsigned text that is logged, so it is bounded for the log.
pub(crate) fn reason_text(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

pub(crate) fn parsed<T: TryFrom<String, Error = FieldError>>(what: &'static str, text: String) -> Result<T, WireError> {
    T::try_from(text).map_err(|source| WireError::Invalid { what, source })
}

pub(crate) fn agent_id(text: String) -> Result<AgentId, WireError> {
    parsed("agent id", text)
}

pub(crate) fn relay_id(text: String) -> Result<RelayId, WireError> {
    parsed("relay id", text)
}

pub(crate) fn boot_id(text: String) -> Result<BootId, WireError> {
    short("boot id", text).map(BootId::from)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Both directions between an enum of the model and its number on the wire.
macro_rules! numbered {
    ($to:ident, $from:ident, $type:ident, $what:literal, $($variant:ident),+ $(,)?) => {
        pub(crate) fn $to(value: $type) -> i32 {
            match value {
                $($type::$variant => proto::$type::$variant.into(),)+
            }
        }

        pub(crate) fn $from(number: i32) -> Result<$type, WireError> {
            match proto::$type::try_from(number) {
                $(Ok(proto::$type::$variant) => Ok($type::$variant),)+
                Ok(proto::$type::Unspecified) | Err(_) => Err(WireError::Unknown { what: $what, number }),
            }
        }
    };
}
pub(crate) use numbered;

numbered!(
    number_of_kind,
    kind,
    OperationKind,
    "operation kind",
    Start,
    Stop,
    Status,
    Manage,
    Release,
    Restart,
    Reload,
    Kill,
);
numbered!(
    number_of_code,
    code,
    Code,
    "code",
    Success,
    Handling,
    AgentAbsent,
    Cancelled,
    Skipped,
    Cordoned,
    Forbidden,
    AlreadyRunning,
    NotRunning,
    IllegalOperation,
    CheckFailed,
    AlreadyRegistered,
    CommandFailed,
);
numbered!(number_of_phase, phase, Phase, "phase", Unknown, Stopped, Starting, Running, Stopping, Waiting, Failed,);
numbered!(number_of_weight, weight, Weight, "weight", Usage, UsageByLimit);

pub(crate) fn spec_json(spec: Option<Arc<Spec>>) -> Option<String> {
    spec.map(|spec| spec_text(&spec).as_ref().to_owned())
}

pub(crate) fn spec(json: Option<String>) -> Result<Option<Arc<Spec>>, WireError> {
    let Some(json) = json else { return Ok(None) };
    let json = bounded("spec", json, SPEC_BYTES_MAX)?;
    spec_of_text(json, read_spec).map(Some)
}

fn read_spec(json: &str) -> Result<Spec, WireError> {
    let read = |source| WireError::Spec { source };
    // Counted before anything is built from them: a few bytes each here, a hundred in memory.
    let Counted { labels: Entries(labels) } = serde_json::from_str(json).map_err(read)?;
    if labels > LABELS_MAX {
        return Err(WireError::TooManyItems { items_max: LABELS_MAX });
    }
    serde_json::from_str(json).map_err(read)
}

/// The parts of a spec that are counted before it is parsed.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    labels: Entries,
}

/// The number of entries of an object; nothing of them is kept.
#[derive(Default)]
struct Entries(usize);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;

        impl<'de> Visitor<'de> for Count {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut count = 0;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Entries(count))
            }
        }

        deserializer.deserialize_map(Count)
    }
}

impl From<HostKey> for proto::HostKey {
    fn from(host: HostKey) -> Self {
        let ip = match host.ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        Self { cloud: host.cloud, supplier: host.supplier, ip }
    }
}

impl TryFrom<proto::HostKey> for HostKey {
    type Error = WireError;
    fn try_from(host: proto::HostKey) -> Result<Self, WireError> {
        let bytes = host.ip.as_slice();
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        let ip = v4
            .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
            .map_err(|_| WireError::Address { what: "host address", bytes: bytes.len() })?;
        Ok(Self { cloud: host.cloud, supplier: host.supplier, ip })
    }
}

impl From<HostFacts> for proto::HostFacts {
    fn from(facts: HostFacts) -> Self {
        let HostFacts { hostname, os, arch, cpus, memory_bytes, agent_version, policy } = facts;
        Self { hostname, os, arch, cpus, memory_bytes, agent_version, policy }
    }
}

impl TryFrom<proto::HostFacts> for HostFacts {
    type Error = WireError;
    fn try_from(facts: proto::HostFacts) -> Result<Self, WireError> {
        Ok(Self {
            hostname: short("hostname", facts.hostname)?,
            os: short("os", facts.os)?,
            arch: short("arch", facts.arch)?,
            cpus: facts.cpus,
            memory_bytes: facts.memory_bytes,
            agent_version: short("agent version", facts.agent_version)?,
            policy: facts.policy.map(|policy| short("policy", policy)).transpose()?,
        })
    }
}

impl From<OperationId> for proto::OperationId {
    fn from(id: OperationId) -> Self {
        Self { task: id.task.to_string(), index: id.index, attempt: id.attempt }
    }
}

impl TryFrom<proto::OperationId> for OperationId {
    type Error = WireError;
    fn try_from(id: proto::OperationId) -> Result<Self, WireError> {
        Ok(Self { task: parsed("task id", short("task id", id.task)?)?, index: id.index, attempt: id.attempt, part: 0 })
    }
}

impl From<ProcessKey> for proto::ProcessKey {
    fn from(key: ProcessKey) -> Self {
        Self { namespace: key.namespace.into(), name: key.name.into() }
    }
}

impl TryFrom<proto::ProcessKey> for ProcessKey {
    type Error = WireError;
    fn try_from(key: proto::ProcessKey) -> Result<Self, WireError> {
        Ok(Self { namespace: parsed("namespace", key.namespace)?, name: parsed("process name", key.name)? })
    }
}

impl From<Outcome> for proto::Outcome {
    fn from(outcome: Outcome) -> Self {
        let outcome = outcome.fitted();
        Self {
            code: number_of_code(outcome.code),
            phrase_json: outcome.message.phrase().map(Phrase::to_json),
            message: outcome.message.into_text(),
            output: outcome.output,
            managed: outcome.managed,
            snapshot: outcome.snapshot.map(Into::into),
            instances: outcome.instances.into_iter().map(Into::into).collect(),
        }
    }
}

/// What an agent says, in our wording if it is a phrase that agents may use: then every language says the same.
pub(crate) fn message(text: String, phrase_json: Option<&str>) -> Message {
    match phrase_json.and_then(|json| Phrase::from_json(json, Sender::Agent)) {
        Some(phrase) => Message::of_parts(phrase.english(), Some(phrase)),
        None => Message::foreign(text),
    }
}

impl TryFrom<proto::Outcome> for Outcome {
    type Error = WireError;
    fn try_from(outcome: proto::Outcome) -> Result<Self, WireError> {
        // Of a newer agent: it exited in a way that has no name here.
        let known = code(outcome.code);
        let message = match &known {
            Ok(_) => message(outcome.message, outcome.phrase_json.as_deref()),
            Err(error) => Message::foreign(format!("{error}: {}", outcome.message)),
        };
        Ok(Self {
            code: known.unwrap_or(Code::CommandFailed),
            message,
            output: outcome.output,
            managed: outcome.managed,
            snapshot: outcome.snapshot.map(Snapshot::try_from).transpose()?,
            instances: outcome.instances.into_iter().map(Snapshot::try_from).collect::<Result<_, _>>()?,
        }
        .fitted())
    }
}

impl From<Snapshot> for proto::Snapshot {
    fn from(snapshot: Snapshot) -> Self {
        let snapshot = snapshot.fitted();
        Self {
            phase: number_of_phase(snapshot.phase),
            managed: snapshot.managed,
            pid: snapshot.pid,
            usage: Some(snapshot.usage.into()),
            version: snapshot.version,
            health: snapshot.health,
            started_at: snapshot.started_at,
            registered_at: snapshot.registered_at,
            reported_at: snapshot.reported_at,
            restarts: snapshot.restarts,
            reason: snapshot.reason,
            reason_phrase_json: snapshot.reason_phrase.as_ref().map(Phrase::to_json),
            utc_offset_secs: snapshot.utc_offset_secs,
            next_run_at: snapshot.next_run_at,
        }
    }
}

impl TryFrom<proto::Snapshot> for Snapshot {
    type Error = WireError;
    fn try_from(snapshot: proto::Snapshot) -> Result<Self, WireError> {
        let reason = message(snapshot.reason, snapshot.reason_phrase_json.as_deref());
        let (reason, reason_phrase) = reason.into_parts();
        Ok(Self {
            phase: phase(snapshot.phase).unwrap_or(Phase::Unknown),
            managed: snapshot.managed,
            pid: snapshot.pid,
            usage: required("usage", snapshot.usage)?.try_into()?,
            version: snapshot.version,
            health: snapshot.health,
            started_at: snapshot.started_at,
            registered_at: snapshot.registered_at,
            reported_at: snapshot.reported_at,
            restarts: snapshot.restarts,
            reason,
            reason_phrase,
            utc_offset_secs: snapshot.utc_offset_secs,
            next_run_at: snapshot.next_run_at,
        }
        .fitted())
    }
}

impl From<Usage> for proto::Usage {
    fn from(usage: Usage) -> Self {
        let or_zero = |number: f64| if number.is_finite() { number } else { 0.0 };
        Self {
            cpu_percent: or_zero(usage.cpu_percent),
            cpu_percent_average: or_zero(usage.cpu_percent_average),
            memory_percent: or_zero(usage.memory_percent),
            memory_bytes: usage.memory_bytes,
            threads: usage.threads,
            state: usage.state,
            command_line: usage.command_line,
            user_ticks: usage.user_ticks,
            system_ticks: usage.system_ticks,
            elapsed_secs: usage.elapsed_secs,
            fds: usage.fds,
        }
    }
}

impl TryFrom<proto::Usage> for Usage {
    type Error = WireError;
    fn try_from(usage: proto::Usage) -> Result<Self, WireError> {
        let finite =
            |what, number: f64| if number.is_finite() { Ok(number) } else { Err(WireError::NotFinite { what }) };
        Ok(Self {
            cpu_percent: finite("cpu_percent", usage.cpu_percent)?,
            cpu_percent_average: finite("cpu_percent_average", usage.cpu_percent_average)?,
            memory_percent: finite("memory_percent", usage.memory_percent)?,
            memory_bytes: usage.memory_bytes,
            threads: usage.threads,
            state: usage.state,
            command_line: usage.command_line,
            user_ticks: usage.user_ticks,
            system_ticks: usage.system_ticks,
            elapsed_secs: usage.elapsed_secs,
            fds: usage.fds,
        })
    }
}

impl From<Pool> for proto::Pool {
    fn from(pool: Pool) -> Self {
        let Pool { namespace, id, limits } = pool;
        Self {
            namespace: namespace.into(),
            id: id.into(),
            cpu: limits.cpu.get(),
            memory: limits.memory.get(),
            cpu_weight: number_of_weight(limits.cpu_weight),
            memory_weight: number_of_weight(limits.memory_weight),
            dry_run: limits.dry_run,
        }
    }
}

impl TryFrom<proto::Pool> for Pool {
    type Error = WireError;
    fn try_from(pool: proto::Pool) -> Result<Self, WireError> {
        let percent = |what, number| Percent::try_from(number).map_err(|source| WireError::Invalid { what, source });
        Ok(Self {
            namespace: parsed("pool namespace", pool.namespace)?,
            id: parsed("pool id", pool.id)?,
            limits: PoolLimits {
                cpu: percent("pool cpu", pool.cpu)?,
                memory: percent("pool memory", pool.memory)?,
                cpu_weight: weight(pool.cpu_weight).unwrap_or(Weight::Usage),
                memory_weight: weight(pool.memory_weight).unwrap_or(Weight::Usage),
                dry_run: pool.dry_run,
            },
        })
    }
}

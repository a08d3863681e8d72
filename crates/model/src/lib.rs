//! The domain types of Proctor: hosts, processes, specs, operations, tasks, outcomes, pools, events and
//! permissions.
//!
//! Promised: a value of a type in this crate is valid; everything that comes from outside is
//! parsed into these types once, at the border, with an error that names the field.
//! Absent: input and output, clocks, randomness, and any number of a wire dialect except in
//! [`Code`], whose numbers all dialects share, and in the format that GSE uses for an [`Event`].
//!
//! Start at `spec`, `operation` and `incarnation`.

mod access;
mod code;
mod event;
mod field;
mod host;
mod ids;
mod incarnation;
mod key;
mod labels;
mod leftovers;
mod message;
mod operation;
mod pool;
mod process_log;
mod report;
#[cfg(any(test, feature = "test-support"))]
pub mod samples;
mod spec;
mod state_hash;
mod status;
mod upgrade;
mod usage_history;

pub use access::{
    AccessTarget, Bounds, Class, Classes, Grant, Permissions, Role, RoleName, Scope, ScopeSet, Subject,
    check_person_name,
};
pub use code::{CODES, Code, CodeEntry};
pub use event::{
    EVENT_CONTENT_BYTES_MAX, EVENT_DETAILS_BYTES_MAX, EVENT_DETAILS_MAX, EVENT_PROC_NAME_BYTES_MAX, Event, EventKind,
    GSE_DATA_ID, POOL_DETAIL,
};
pub use field::{FieldError, is_hidden};
pub use host::{HostFacts, HostKey};
pub use ids::{AgentId, OperationId, RelayId, TaskId};
pub use incarnation::{BootId, Incarnation};
pub use key::{Namespace, ProcessKey, ProcessName};
pub use labels::Labels;
pub use leftovers::{Leftovers, ProcessSession};
pub use message::{Entry, Message, PHRASE_BYTES_MAX, Phrase, Sender, entries, known_phrase, messages};
pub use operation::{OperationKind, Outcome};
pub use pool::{POOL_LABEL, Pool, PoolId, PoolLimits, Weight};
pub use process_log::{LOG_BYTES_MAX, LOG_LINES, LOG_LINES_MAX, LogPosition, LogQuery, LogState, LogTail};
pub use report::{CommandExit, CommandResult, Exit, Probe, Signal};
pub use spec::{
    AbsolutePath, CommandLine, ConfigFile, Control, CronRule, HealthPolicy, Identity, LABELS_MAX, Lifetime, Limits,
    Ownership, Percent, Period, Policy, ProcName, SPEC_BYTES_MAX, Seconds, Spec, SpecHash, UncheckedPath, UserName,
};
pub use state_hash::{AgentState, StateHash};
pub use status::{EVICTED_REASON, Phase, Snapshot, Usage};
pub use upgrade::{AgentVersion, BUILD_MARK, UpgradeStep, VERSION_BYTES_MAX};
pub use usage_history::{Spread, UsageHistory, UsageKept, UsagePoint, UsageRange};

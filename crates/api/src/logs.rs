//! The end of a process's own log, read by its host.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: String,
    /// Maximum number of lines from the end of the log; default 200.
    #[param(minimum = 1, maximum = 2000)]
    pub lines: Option<u32>,
    /// `position` of an earlier answer: only what was written since, however many lines.
    pub since: Option<String>,
    /// Which instance of a process that has several; default: the first.
    pub instance: Option<u32>,
}

/// Whether the host could be asked, and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    /// `text` is the end of the log; empty if the log is empty, or nothing was written since.
    Read,
    /// The spec names no log_path.
    NoPath,
    /// There is no such file on the host, yet.
    Missing,
    /// The user of the process may not read it, and so nobody may.
    Denied,
    /// A FIFO, a device, a directory without a log, or a link made by somebody else.
    NotALog,
    /// The host policy does not allow it.
    Forbidden,
    /// The host could not read it; `problem` says why.
    Unreadable,
    /// The host does not know the process yet.
    NotRegistered,
    /// The host's agent is not connected.
    Offline,
    /// The version of the host's agent cannot read logs.
    AgentTooOld,
    /// The host's agent did not answer in time.
    NoAnswer,
}

/// The end of the log of one process on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogView {
    /// `NAMESPACE/NAME`, with `#NUMBER` for an instance.
    pub process: String,
    pub host: String,
    pub state: LogState,
    /// The file on the host; empty if there is none.
    pub path: String,
    /// Why it could not be read, if the host says more than `state`.
    pub problem: String,
    /// At most 60 KiB of the file. Invalid UTF-8 is replaced by U+FFFD; control characters are unchanged.
    pub text: String,
    /// `since` of the next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Of the whole file, in bytes.
    pub size: u64,
    /// When the file was last written, by the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<i64>,
    /// The text does not continue the earlier answer: the log was rotated or truncated.
    pub restarted: bool,
    /// Bytes written since the earlier answer that are not in the text, because there were too many.
    pub skipped: u64,
}

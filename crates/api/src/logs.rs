//! What a process wrote to its own log, as its host reads it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: String,
    /// How many lines at most, from the end of the log; 200 where it is absent.
    #[param(minimum = 1, maximum = 2000)]
    pub lines: Option<u32>,
    /// `position` of an earlier answer: only what was written since, however many lines.
    pub since: Option<String>,
    /// Which instance of a process that has several; the first where it is absent.
    pub instance: Option<u32>,
}

/// Whether the host could be asked, and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    /// `text` is the end of the log; empty where nothing is in it, or was written since.
    Read,
    /// The spec names no log_path.
    NoPath,
    /// There is no such file on the host, yet.
    Missing,
    /// The user of the process may not read it, and so nobody may.
    Denied,
    /// A FIFO, a device, a directory without a log, or a link that somebody else has made.
    NotALog,
    /// The policy of the host's owner does not allow it.
    Forbidden,
    /// The host could not read it; `problem` says why.
    Unreadable,
    /// The host does not know the process yet.
    NotRegistered,
    /// The host's agent is not connected.
    Offline,
    /// The host's agent is of a version that reads no logs.
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
    /// The file on the host; empty where none is named.
    pub path: String,
    /// Why it could not be read, where the host says more than `state`.
    pub problem: String,
    /// At most 60 KiB of the file. What is not UTF-8 in it is replaced by U+FFFD; control characters are as they are.
    pub text: String,
    /// `since` of the next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Of the whole file, in bytes.
    pub size: u64,
    /// When the file was last written, by the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<i64>,
    /// The text does not follow that of the earlier answer: the log was rotated or truncated.
    pub restarted: bool,
    /// Bytes that were written since the earlier answer and are not in the text, because they were too many.
    pub skipped: u64,
}

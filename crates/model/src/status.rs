//! The observed state of a process.

use serde::{Deserialize, Serialize};

use crate::message::known_phrase;
use crate::{FieldError, Message, Phrase, messages};

/// The phase of a process on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not probed yet since the agent started, or a probe could not tell whether it runs.
    #[default]
    Unknown,
    /// Not running, and nobody is about to start it.
    Stopped,
    /// A start or restart is in progress.
    Starting,
    Running,
    /// A stop or kill is in progress.
    Stopping,
    /// Dead and managed; waiting for the next start.
    Waiting,
    /// Given up after the last retry; no longer managed.
    Failed,
}

impl Phase {
    pub const ALL: [Self; 7] =
        [Self::Unknown, Self::Stopped, Self::Starting, Self::Running, Self::Stopping, Self::Waiting, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

impl std::str::FromStr for Phase {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || FieldError::new("phase", messages::not_one_of(text, Self::ALL.map(Self::as_str).join(", ")));
        Self::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or_else(bad)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Resource use and kernel data of one running process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Of the whole machine, since the previous sample (since the start for the first one).
    pub cpu_percent: f64,
    /// Of the whole machine, since the process started.
    pub cpu_percent_average: f64,
    pub memory_percent: f64,
    pub memory_bytes: u64,
    pub threads: u32,
    /// The kernel's state letter.
    pub state: String,
    pub command_line: String,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub elapsed_secs: u64,
    /// Open descriptors of the process and its descendants, as far as the agent may look.
    #[serde(default)]
    pub fds: u64,
}

/// Prefix of the reason of a process that was evicted for exceeding a limit of its own or of its pool.
pub const EVICTED_REASON: &str = "ended for its use of ";
/// The ids of such reasons.
const EVICTED_IDS: [&str; 2] = ["ended_over_limit", "ended_over_pool_limit"];

/// The longest text of a snapshot. A reason may be the output of a command.
const TEXT_BYTES_MAX: usize = 1024;
const COMMAND_LINE_BYTES_MAX: usize = 4096;

/// The state of one process at one moment, as its agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Snapshot {
    pub phase: Phase,
    pub managed: bool,
    /// None when not running.
    pub pid: Option<i32>,
    pub usage: Usage,
    pub version: String,
    pub health: String,
    /// Times in Unix seconds; 0 for never.
    pub started_at: i64,
    pub registered_at: i64,
    pub reported_at: i64,
    /// Starts by supervision since the last operation or stable run.
    pub restarts: u32,
    /// Why it is not running, if known, in English.
    pub reason: String,
    /// The same as an entry of the message catalogue; absent if it is none, as from agents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_phrase")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub reason_phrase: Option<Phrase>,
    /// The next run of a periodic process, in Unix seconds; 0 if it is not periodic.
    #[serde(default)]
    pub next_run_at: i64,
    /// The host's offset from UTC.
    pub utc_offset_secs: i32,
}

impl Snapshot {
    /// Evicted for exceeding a limit; waiting for its next start.
    pub fn is_evicted(&self) -> bool {
        let id = self.reason_phrase.as_ref().map(Phrase::id);
        let is_reason = match id {
            Some(id) => EVICTED_IDS.contains(&id),
            None => self.reason.starts_with(EVICTED_REASON),
        };
        self.phase == Phase::Waiting && is_reason
    }

    pub fn reason(&self) -> Message {
        Message::of_parts(self.reason.clone(), self.reason_phrase.clone())
    }

    pub fn set_reason(&mut self, reason: Message) {
        (self.reason, self.reason_phrase) = reason.into_parts();
    }

    /// With its texts truncated to what a link carries.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        for text in [&mut self.version, &mut self.health, &mut self.usage.state] {
            cut(text, TEXT_BYTES_MAX);
        }
        let reason = Message::of_parts(std::mem::take(&mut self.reason), self.reason_phrase.take());
        self.set_reason(reason.fitted(TEXT_BYTES_MAX, ""));
        cut(&mut self.usage.command_line, COMMAND_LINE_BYTES_MAX);
        self
    }
}

pub(crate) fn cut(text: &mut String, bytes_max: usize) {
    text.truncate(text.floor_char_boundary(bytes_max));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    #[test]
    fn an_eviction_is_known_by_its_id_and_that_of_an_earlier_agent_by_its_text() {
        let reason = messages::ended_over_limit("memory", 9, 5);
        let mut snapshot = Snapshot { phase: Phase::Waiting, ..Snapshot::default() };

        snapshot.set_reason(reason.clone());
        assert!(snapshot.is_evicted() && snapshot.reason_phrase.is_some());
        assert_eq!(snapshot.reason(), reason);
        snapshot.set_reason(Message::foreign(reason.as_str()));
        assert!(snapshot.is_evicted());
        snapshot.set_reason(messages::registration_waits());
        assert!(!snapshot.is_evicted());
    }

    #[test]
    fn a_snapshot_keeps_the_phrase_of_its_reason_and_one_without_it_is_read() {
        let mut snapshot = Snapshot::default();
        snapshot.set_reason(messages::no_pid_file("/run/a.pid"));
        let json = serde_json::to_value(&snapshot).unwrap();
        let mut earlier = json.clone();
        earlier.as_object_mut().unwrap().remove("reason_phrase");

        assert_eq!(json["reason"], "no pid file /run/a.pid");
        assert_eq!(json["reason_phrase"]["id"], "no_pid_file");
        assert_eq!(serde_json::from_value::<Snapshot>(json).unwrap(), snapshot);
        let earlier: Snapshot = serde_json::from_value(earlier).unwrap();
        assert_eq!((earlier.reason.as_str(), earlier.reason_phrase), ("no pid file /run/a.pid", None));
    }

    #[test]
    fn a_reason_that_is_cut_is_text_alone() {
        let mut snapshot = Snapshot::default();
        snapshot.set_reason(messages::no_pid_file("长".repeat(1000)));

        let fitted = snapshot.fitted();

        assert!(fitted.reason.len() <= TEXT_BYTES_MAX && fitted.reason_phrase.is_none());
    }
}

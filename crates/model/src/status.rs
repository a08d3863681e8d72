//! What is seen of a process.

use serde::{Deserialize, Serialize};

use crate::FieldError;

/// Where a process stands on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not looked at yet since the agent started, or a look could not tell whether it runs.
    #[default]
    Unknown,
    /// Not running, and nobody is about to start it.
    Stopped,
    /// A start or restart is on its way.
    Starting,
    Running,
    /// A stop or kill is on its way.
    Stopping,
    /// Dead and managed; the next start waits for its time.
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
        let bad = || FieldError::new("phase", format!("'{text}' is not a phase of a process"));
        Self::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or_else(bad)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Resource use and kernel facts of one running process.
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
    /// Open descriptors of the process and its descendants, where the agent may look.
    #[serde(default)]
    pub fds: u64,
}

/// How the reason of a process begins that was ended for exceeding a limit of its own or of its pool.
pub const EVICTED_REASON: &str = "ended for its use of ";

/// What a snapshot carries of one text. A reason may be what a command printed.
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
    /// Times in Unix seconds; 0 where it never happened.
    pub started_at: i64,
    pub registered_at: i64,
    pub reported_at: i64,
    /// Starts by supervision since the last operation or stable run.
    pub restarts: u32,
    /// Why it is not running, where that is known.
    pub reason: String,
    /// When a periodic process runs next, in Unix seconds; 0 where it does not.
    #[serde(default)]
    pub next_run_at: i64,
    /// The host's offset from UTC.
    pub utc_offset_secs: i32,
}

impl Snapshot {
    /// Ended for exceeding a limit, and waits for its next start.
    pub fn is_evicted(&self) -> bool {
        self.phase == Phase::Waiting && self.reason.starts_with(EVICTED_REASON)
    }

    /// With its texts cut to what a link carries.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        for text in [&mut self.version, &mut self.health, &mut self.reason, &mut self.usage.state] {
            cut(text, TEXT_BYTES_MAX);
        }
        cut(&mut self.usage.command_line, COMMAND_LINE_BYTES_MAX);
        self
    }
}

pub(crate) fn cut(text: &mut String, bytes_max: usize) {
    text.truncate(text.floor_char_boundary(bytes_max));
}

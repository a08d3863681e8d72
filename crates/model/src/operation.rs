//! What can be asked of a process, and what came of it.

use serde::{Deserialize, Serialize};

use crate::{Code, Snapshot};

/// The eight operations. Their numbers differ between dialects and stay at the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    Start,
    Stop,
    Status,
    Manage,
    Release,
    Restart,
    Reload,
    Kill,
}

impl OperationKind {
    pub const ALL: [Self; 8] =
        [Self::Start, Self::Stop, Self::Status, Self::Manage, Self::Release, Self::Restart, Self::Reload, Self::Kill];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Status => "status",
            Self::Manage => "manage",
            Self::Release => "release",
            Self::Restart => "restart",
            Self::Reload => "reload",
            Self::Kill => "kill",
        }
    }

    /// Whether a spec that comes with the operation becomes the registered one.
    pub fn stores_spec(self) -> bool {
        matches!(self, Self::Start | Self::Manage | Self::Restart)
    }
}

impl std::fmt::Display for OperationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for OperationKind {
    type Err = crate::FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| crate::FieldError::new("operation", format!("'{text}' is not an operation")))
    }
}

/// The final word on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub code: Code,
    /// `success`, or a sentence for the person who asked.
    pub message: String,
    /// What the command printed, bounded; empty where no command ran.
    pub output: String,
    /// Whether the process is managed now.
    pub managed: bool,
    /// The live state, for a status query.
    pub snapshot: Option<Snapshot>,
}

impl Outcome {
    pub fn success(managed: bool) -> Self {
        Self::new(Code::Success, "success", managed)
    }

    pub fn new(code: Code, message: impl Into<String>, managed: bool) -> Self {
        Self { code, message: message.into(), output: String::new(), managed, snapshot: None }
    }

    #[must_use]
    pub fn with_output(mut self, output: String) -> Self {
        self.output = output;
        self
    }
}

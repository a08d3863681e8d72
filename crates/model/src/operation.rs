//! Operations on a process, and their outcomes.

use serde::{Deserialize, Serialize};

use std::time::Duration;

use crate::status::cut;
use crate::{Code, Message, Snapshot, Spec, messages};

/// The eight operations. Their numbers differ between dialects and stay at the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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

    /// Its name in a sentence.
    pub fn message(self) -> Message {
        match self {
            Self::Start => messages::start(),
            Self::Stop => messages::stop(),
            Self::Status => messages::status(),
            Self::Manage => messages::manage(),
            Self::Release => messages::release(),
            Self::Restart => messages::restart(),
            Self::Reload => messages::reload(),
            Self::Kill => messages::kill(),
        }
    }

    /// The longest it may take on a host under the policy of `spec`.
    pub fn time_needed(self, spec: &Spec) -> Duration {
        let policy = &spec.policy;
        let command = policy.op_timeout.duration();
        let start = command + policy.last_start_check().duration().max(Self::SEEK_MIN);
        let stop = command + policy.stop_check.duration().max(Self::SEEK_MIN);
        match self {
            Self::Start => start,
            Self::Stop | Self::Kill => stop + Self::SEEK_MIN,
            Self::Restart if spec.control.restart.is_some() => start,
            Self::Restart => stop + start,
            Self::Reload => command + Self::SEEK_MIN,
            Self::Status => Self::STATUS,
            Self::Manage | Self::Release => Self::SEEK_MIN,
        }
    }

    /// The least time given to finding a process, or to waiting for its exit.
    const SEEK_MIN: Duration = Duration::from_secs(5);
    /// A probe, and a version command if there is one.
    const STATUS: Duration = Duration::from_secs(10);

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
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            crate::FieldError::new("operation", messages::not_one_of(text, Self::ALL.map(Self::as_str).join(", ")))
        })
    }
}

/// The final result of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub code: Code,
    /// `success`, or a sentence for the person who asked.
    #[serde(flatten, with = "crate::message::as_message")]
    pub message: Message,
    /// What the command printed, bounded; empty where no command ran.
    pub output: String,
    /// Whether the process is managed now.
    pub managed: bool,
    /// The live state, for a status query.
    pub snapshot: Option<Snapshot>,
    /// The live state of each instance, where there are several.
    #[serde(default)]
    pub instances: Vec<Snapshot>,
}

/// Together far below the largest frame of a link.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
const SNAPSHOTS_MAX: usize = 512;
/// GSE's word, in every language. It has no id, because most outcomes are this one.
const SUCCESS: &str = "success";
const CUT: &str = "\n... the rest was left out ...";

impl Outcome {
    pub fn success(managed: bool) -> Self {
        Self::new(Code::Success, Message::foreign(SUCCESS), managed)
    }

    pub fn new(code: Code, message: Message, managed: bool) -> Self {
        Self { code, message, output: String::new(), managed, snapshot: None, instances: Vec::new() }
    }

    /// Truncated to what a link carries, and marked if something was left out.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        self.message = self.message.fitted(MESSAGE_BYTES_MAX, CUT);
        if self.output.len() > OUTPUT_BYTES_MAX {
            cut(&mut self.output, OUTPUT_BYTES_MAX - CUT.len());
            self.output.push_str(CUT);
        }
        self.snapshot = self.snapshot.map(Snapshot::fitted);
        self.instances = self.instances.into_iter().take(SNAPSHOTS_MAX).map(Snapshot::fitted).collect();
        self
    }

    #[must_use]
    pub fn with_output(mut self, output: String) -> Self {
        self.output = output;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_is_too_large_is_cut_once_and_says_so() {
        let mut outcome = Outcome::new(Code::CommandFailed, Message::foreign("界".repeat(100_000)), false);
        outcome.output = "x".repeat(3_000_000);
        let reason = "r".repeat(10_000);
        outcome.instances = vec![Snapshot { reason, ..Snapshot::default() }; 600];

        let fitted = outcome.fitted();

        assert!(fitted.message.len() <= MESSAGE_BYTES_MAX && fitted.message.ends_with("left out ..."));
        assert!(fitted.output.len() <= OUTPUT_BYTES_MAX && fitted.output.ends_with("left out ..."));
        assert_eq!((fitted.instances.len(), fitted.instances[0].reason.len()), (SNAPSHOTS_MAX, 1024));
        assert_eq!(fitted.clone().fitted(), fitted);
        let small = Outcome::success(true).with_output("words".to_owned());
        assert_eq!(small.clone().fitted(), small);
    }

    #[test]
    fn an_outcome_is_kept_with_its_phrase_and_read_without() {
        let outcome = Outcome::new(Code::AlreadyRunning, messages::process_runs_already(7), true);
        let json = serde_json::to_value(&outcome).unwrap();

        assert_eq!(json["message"], "process 7 is already running");
        assert_eq!(json["phrase"], serde_json::json!({"id": "process_runs_already", "args": {"pid": "7"}}));
        assert_eq!(serde_json::from_value::<Outcome>(json.clone()).unwrap(), outcome);
        let mut of_before = json.clone();
        of_before.as_object_mut().unwrap().remove("phrase");
        assert_eq!(
            serde_json::from_value::<Outcome>(of_before).unwrap().message,
            Message::foreign("process 7 is already running")
        );
        let mut of_later = json;
        of_later["phrase"]["id"] = "not_yet_known".into();
        assert_eq!(
            serde_json::from_value::<Outcome>(of_later).unwrap().message,
            Message::foreign("process 7 is already running")
        );
    }
}

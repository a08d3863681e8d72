//! Operations on registered processes.

use proctor_model::{Namespace, OperationKind, Phase, ProcessKey, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CountOrPercent, LocalizedMessage, OptionalNote, Text};

/// What to do, with which processes, on which hosts. The processes are one by name, or those that match a selector;
/// the hosts are a list, those of a business, or all. Or pairs of a process and a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationRequest {
    pub operation: OperationKind,
    /// `NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub process: Option<Text<ProcessKey>>,
    /// Instead of a process: by labels, `env=prod,tier!=db,!x,y`. Resolved once, at the time of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Narrows the selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Text<Namespace>>,
    /// Each an IP address, `CLOUD:IP` or an agent id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Instead of hosts: wherever a process is registered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Instead of hosts: those of this business where a process is registered.
    #[serde(default, deserialize_with = "crate::id::optional", skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    /// Instead of all of these: exact pairs, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub targets: Option<Vec<ExactTarget>>,
    /// Only says what would be done, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    /// In batches, instead of all at once. Not for `status`.
    #[serde(default, deserialize_with = "crate::object::optional", skip_serializing_if = "Option::is_none")]
    pub rolling: Option<Rolling>,
    /// Targets whose host is offline wait this many seconds for it, 3600 at most, instead of ending as
    /// `agent_absent` at once. Not for `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600)]
    pub wait_secs: Option<u64>,
}

impl OperationRequest {
    /// On no process and no host yet.
    pub fn new(operation: OperationKind) -> Self {
        Self {
            operation,
            process: None,
            selector: None,
            namespace: None,
            hosts: None,
            all: false,
            business: None,
            targets: None,
            plan: false,
            rolling: None,
            wait_secs: None,
        }
    }
}

/// One process on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExactTarget {
    /// `NAMESPACE/NAME`.
    #[schema(value_type = String)]
    pub process: Text<ProcessKey>,
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: String,
}

/// How a task is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rolling {
    pub max_parallel: CountOrPercent,
    /// Stops the rollout after more failures than this.
    #[serde(default)]
    pub max_failures: u32,
    /// Run this many targets first; the task then pauses until it is resumed. 0: no canary.
    #[serde(default)]
    pub canary: u32,
    /// A target is done only once its process is healthy.
    #[serde(default)]
    pub wait_healthy: bool,
}

/// A task or, for a plan, what it would be: one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    pub total: usize,
    /// How many would be refused.
    pub refused: usize,
    pub targets: Vec<PlannedTarget>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedTarget {
    pub host: String,
    pub process: String,
    pub operation: OperationKind,
    /// The phase of the process as last observed; absent if the caller may not read it, or nothing is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether the host's agent is connected; absent like `phase`. If not, the target ends as `agent_absent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Why nothing would be done here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// What the spec asks for and does not get, such as more instances than can be distinguished.
    #[serde(flatten)]
    pub note: OptionalNote,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    pub code: u32,
    pub name: String,
    #[serde(flatten)]
    pub localized: LocalizedMessage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_only_what_it_narrows() {
        let request = OperationRequest {
            process: Some(Text("web/a".parse().unwrap())),
            all: true,
            ..OperationRequest::new(OperationKind::Stop)
        };

        let json = serde_json::to_value(&request).unwrap();

        assert_eq!(json, serde_json::json!({ "operation": "stop", "process": "web/a", "all": true }));
    }
}

//! What the border hands to the control plane, and what it gets back.

use std::net::IpAddr;
use std::sync::Arc;

use proctor_model::{AgentId, HostKey, OperationKind, ProcessKey, Spec};
use proctor_store::StoreError;

/// Who asks, after authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub app: String,
    pub user: String,
}

/// Where a request came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub remote: Option<IpAddr>,
    pub request_id: String,
}

/// A host as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostRef {
    Key(HostKey),
    Agent(AgentId),
}

impl HostRef {
    pub fn key(&self) -> Option<HostKey> {
        match self {
            Self::Key(key) => Some(*key),
            Self::Agent(_) => None,
        }
    }

    pub fn agent(&self) -> Option<AgentId> {
        match self {
            Self::Key(_) => None,
            Self::Agent(agent) => Some(agent.clone()),
        }
    }
}

impl std::fmt::Display for HostRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Agent(agent) => agent.fmt(f),
        }
    }
}

/// Operations to be carried out in the background, one row for each target.
#[derive(Clone, Debug)]
pub struct Submission {
    pub caller: Caller,
    /// The dialect's name, given back with the task so that the answer can be encoded.
    pub family: &'static str,
    pub items: Vec<SubmittedItem>,
}

#[derive(Clone, Debug)]
pub struct SubmittedItem {
    pub key: ProcessKey,
    /// None: the caller's number means no operation; its rows end with 832.
    pub kind: Option<OperationKind>,
    pub spec: SpecSource,
    pub targets: Vec<SubmittedTarget>,
}

#[derive(Clone, Debug)]
pub enum SpecSource {
    /// What is registered on each host.
    Registered,
    /// What came with the call. Start, restart and manage also register it.
    Given(Arc<Spec>),
}

#[derive(Clone, Debug)]
pub struct SubmittedTarget {
    pub host: HostRef,
    /// The key of its row in the answer; unique in the submission.
    pub row_key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the server is shutting down")]
    ShuttingDown,
}

//! What crosses the border, as the client sees it. Times are Unix seconds.
//!
//! Written a second time on purpose: the server's own types encode, these decode, and a field that
//! a newer server adds is not an error here. A `host` is `CLOUD:IP`; or, for one that the server does
//! not know, what the caller wrote.

use std::net::IpAddr;

use proctor_model::{AgentId, HostFacts, Lifetime, Phase, Snapshot, Spec, TaskId, Weight};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Which hosts a call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Where the process is registered; for pools, every enrolled host.
    All,
    /// Each an IP address, CLOUD:IP or an agent id.
    These(Vec<String>),
}

impl Hosts {
    pub(crate) fn add_to(&self, body: &mut Value) {
        match self {
            Self::All => body["all"] = json!(true),
            Self::These(hosts) => body["hosts"] = json!(hosts),
        }
    }
}

impl Serialize for Hosts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = json!({});
        self.add_to(&mut body);
        body.serialize(serializer)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostView {
    pub host: String,
    pub cloud: u32,
    pub supplier: u32,
    pub ip: IpAddr,
    pub agent: AgentId,
    pub online: bool,
    pub enrolled_at: i64,
    /// When `online` last changed.
    pub presence_changed_at: i64,
    #[serde(default)]
    pub facts: HostFacts,
}

/// Which processes; a field that is None does not narrow.
#[derive(Clone, Debug, Default)]
pub struct ProcessFilter {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub host: Option<String>,
    pub offset: u64,
    pub limit: Option<u64>,
}

impl ProcessFilter {
    pub(crate) fn to_query(&self) -> Vec<(&'static str, String)> {
        let texts = [("namespace", &self.namespace), ("name", &self.name), ("host", &self.host)];
        let mut query: Vec<_> = texts.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
        if self.offset > 0 {
            query.push(("offset", self.offset.to_string()));
        }
        query.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        query
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessPage {
    /// How many match, on all pages.
    pub count: u64,
    pub processes: Vec<ProcessView>,
}

/// One process on one host. `spec`, `snapshot` and `registered_at` come only where the whole was
/// asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessView {
    /// `NAMESPACE/NAME`.
    pub process: String,
    pub host: String,
    pub agent: AgentId,
    /// Whether its agent is connected; if not, the rest is what was last seen.
    pub online: bool,
    pub phase: Phase,
    pub managed: bool,
    pub pid: Option<i32>,
    pub cpu_percent: f64,
    pub memory_percent: f64,
    pub started_at: i64,
    pub restarts: u32,
    pub version: String,
    pub reason: String,
    pub lifetime: Lifetime,
    pub generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Spec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

#[derive(Deserialize)]
pub(crate) struct HostList {
    pub(crate) hosts: Vec<HostView>,
}

#[derive(Deserialize)]
pub(crate) struct PoolList {
    pub(crate) pools: Vec<PoolView>,
}

#[derive(Deserialize)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
}

#[derive(Deserialize)]
pub(crate) struct Accepted {
    pub(crate) task_id: TaskId,
}

/// What came of a call on one host, where no agent was needed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub host: String,
    pub code: u32,
    pub name: String,
    pub message: String,
}

impl Row {
    pub fn is_success(&self) -> bool {
        self.code == 0
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskView {
    pub task_id: TaskId,
    pub created_at: i64,
    pub total: usize,
    pub pending: usize,
    pub succeeded: usize,
    pub failed: usize,
    pub targets: Vec<TargetRow>,
}

impl TaskView {
    pub fn is_finished(&self) -> bool {
        self.pending == 0
    }
}

/// One target of a task; 115 `handling` while it has no outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetRow {
    pub host: String,
    pub process: String,
    /// None where the caller's number meant no operation.
    pub operation: Option<String>,
    pub code: u32,
    pub name: String,
    pub message: String,
    pub output: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// A pool to be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolSetting {
    pub namespace: String,
    pub id: String,
    pub cpu: f64,
    pub memory: f64,
    pub cpu_weight: Weight,
    pub memory_weight: Weight,
}

/// A pool on one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolView {
    pub host: String,
    pub agent: AgentId,
    #[serde(flatten)]
    pub pool: PoolSetting,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewToken {
    pub uses: u32,
    pub ttl_secs: u64,
    /// The only cloud area that it is good for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_id: Option<u32>,
}

/// Holds a secret: not for logs.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedToken {
    pub token: String,
    pub expires_at: i64,
}

/// Holds a secret: not for logs.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedApp {
    pub code: String,
    pub secret: String,
    pub trusted: bool,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CreatedApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedApp").field("code", &self.code).field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_a_list_or_all() {
        assert_eq!(serde_json::to_value(Hosts::All).unwrap(), json!({ "all": true }));
        assert_eq!(serde_json::to_value(Hosts::These(vec!["a".into()])).unwrap(), json!({ "hosts": ["a"] }));
    }

    #[test]
    fn a_filter_asks_only_for_what_it_narrows() {
        let filter = ProcessFilter { namespace: Some("demo".into()), limit: Some(5), ..ProcessFilter::default() };

        assert_eq!(filter.to_query(), [("namespace", "demo".to_owned()), ("limit", "5".to_owned())]);
    }
}

//! Hosts: the list of them, and how a body says which are meant.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use proctor_model::{AgentId, FieldError, HostFacts, HostKey, ProcessKey};
use proctor_store::{HostRecord, ProcessQuery};
use serde::Serialize;
use serde_json::{Value, json};

use super::body::flag;
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::api::fields::{Fields, each, text};
use crate::control::{Control, HostRef};

const MILLIS: i64 = 1000;

#[derive(Serialize)]
struct HostView {
    host: String,
    cloud: u32,
    supplier: u32,
    ip: std::net::IpAddr,
    agent: AgentId,
    online: bool,
    enrolled_at: i64,
    presence_changed_at: i64,
    facts: HostFacts,
}

impl From<HostRecord> for HostView {
    fn from(record: HostRecord) -> Self {
        let HostKey { cloud, supplier, ip } = record.key;
        Self {
            host: record.key.to_string(),
            cloud,
            supplier,
            ip,
            agent: record.agent,
            online: record.online,
            enrolled_at: record.enrolled_at / MILLIS,
            presence_changed_at: record.presence_changed_at / MILLIS,
            facts: record.facts,
        }
    }
}

pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<Value>> {
    let hosts: Vec<HostView> = state.control.hosts().await?.into_iter().map(HostView::from).collect();
    Ok(Json(json!({ "hosts": hosts })))
}

/// A host as people write it: an IP address, `CLOUD:IP`, or an agent id.
pub(super) fn parse_host(text: &str) -> std::result::Result<HostRef, FieldError> {
    if let Ok(key) = text.parse::<HostKey>() {
        return Ok(HostRef::Key(key));
    }
    let agent = text.parse::<AgentId>();
    agent
        .map(HostRef::Agent)
        .map_err(|_| FieldError::new("", format!("'{text}' is neither an IP address, CLOUD:IP nor an agent id")))
}

/// `"hosts": [...]` or `"all": true`, one of them.
#[derive(Debug)]
pub(super) enum Chosen {
    All,
    These(Vec<HostRef>),
}

impl Chosen {
    pub(super) fn of(body: Fields<'_>) -> std::result::Result<Self, FieldError> {
        let hosts = body.optional("hosts", |list| each(list, |value| parse_host(text(value)?)))?;
        let all = body.optional("all", flag)?.unwrap_or(false);
        match (hosts, all) {
            (None, true) => Ok(Self::All),
            (Some(_), true) => Err(FieldError::new("all", "excludes hosts: give one of them")),
            (None, false) => Err(FieldError::new("hosts", "is missing: give a list of hosts, or \"all\": true")),
            (Some(hosts), false) if hosts.is_empty() => Err(FieldError::new("hosts", "must not be empty")),
            (Some(hosts), false) => Ok(Self::These(hosts)),
        }
    }

    /// All: where the process is registered.
    pub(super) async fn where_registered(self, control: &Control, key: &ProcessKey) -> Result<Vec<HostRef>> {
        match self {
            Self::These(hosts) => distinct(control, hosts).await,
            Self::All => {
                let query = ProcessQuery {
                    namespace: Some(key.namespace.clone()),
                    name: Some(key.name.clone()),
                    ..ProcessQuery::default()
                };
                let (_, records) = control.processes(query, None).await?;
                if records.is_empty() {
                    return Err(not_registered(key));
                }
                Ok(records.into_iter().map(|record| HostRef::Key(record.host)).collect())
            }
        }
    }

    /// All: every enrolled host.
    pub(super) async fn where_enrolled(self, control: &Control) -> Result<Vec<HostRef>> {
        match self {
            Self::These(hosts) => distinct(control, hosts).await,
            Self::All => {
                let hosts = control.hosts().await?;
                if hosts.is_empty() {
                    return Err(NativeError::new(Kind::NotFound, "no host has enrolled yet"));
                }
                Ok(hosts.into_iter().map(|host| HostRef::Key(host.key)).collect())
            }
        }
    }
}

pub(super) fn not_registered(key: &ProcessKey) -> NativeError {
    NativeError::new(Kind::NotFound, format!("process {key} is registered on no host"))
}

/// Refuses a host that is named twice, also where once by its address and once by its agent.
async fn distinct(control: &Control, hosts: Vec<HostRef>) -> Result<Vec<HostRef>> {
    let records = control.resolve(&hosts).await?;
    let mut seen = HashSet::new();
    for (index, (host, record)) in hosts.iter().zip(records).enumerate() {
        let identity = record.map_or_else(|| host.clone(), |record| HostRef::Agent(record.agent));
        if !seen.insert(identity) {
            return Err(FieldError::new(format!("hosts[{index}]"), format!("host {host} is named twice")).into());
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(body: Value) -> std::result::Result<Chosen, FieldError> {
        Chosen::of(Fields::of(&body)?)
    }

    #[test]
    fn hosts_are_addresses_or_agent_ids() {
        let Chosen::These(hosts) = chosen(json!({ "hosts": ["10.0.0.1", "3:10.0.0.1", "a-1"] })).unwrap() else {
            panic!("a list is these");
        };

        let shown: Vec<String> = hosts.iter().map(HostRef::to_string).collect();
        assert_eq!(shown, ["0:10.0.0.1", "3:10.0.0.1", "a-1"]);
    }

    #[test]
    fn a_bad_host_is_named_by_its_place() {
        let error = chosen(json!({ "hosts": ["10.0.0.1", "no such/host"] })).unwrap_err();

        assert_eq!(error.field, "hosts[1]");
    }

    #[test]
    fn one_of_hosts_and_all_must_be_there() {
        assert!(matches!(chosen(json!({ "all": true })), Ok(Chosen::All)));
        assert_eq!(chosen(json!({})).unwrap_err().field, "hosts");
        assert_eq!(chosen(json!({ "hosts": [] })).unwrap_err().field, "hosts");
        assert_eq!(chosen(json!({ "hosts": ["10.0.0.1"], "all": true })).unwrap_err().field, "all");
    }
}

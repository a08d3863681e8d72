//! The changes that would make hosts match the files.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, anyhow, bail};
use futures::TryStreamExt;
use proctor_client::{
    Change, Client, ClientError, HostQuery, HostView, Hosts, LIMIT_MAX, PoolQuery, PoolSetting, PoolView, ProcessQuery,
    ProcessView,
};
use proctor_model::ProcessKey;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::files::{Declared, DeclaredPool, DeclaredProcess};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Create,
    Change,
    Unchanged,
    /// Only if pruning was requested.
    Delete,
    /// The host cannot have it.
    Refused,
}

/// One thing on one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    pub(super) action: Action,
    /// `process` or `pool`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) host: String,
    pub(super) changes: Vec<Change>,
    /// Why it is refused, or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

/// Steps that one call of the API carries out.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) what: What,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) enum What {
    /// A registration without its hosts.
    Register(Map<String, Value>),
    SetPool(PoolSetting),
    Unregister(ProcessKey),
}

/// Has the server validate every entry before anything is changed, so that one bad entry stops them all.
pub(super) async fn plan(client: &Client, declared: Declared, prune: bool) -> Result<Vec<Work>> {
    let mut resolver = HostResolver { client, known: HashMap::new() };
    let mut owners: HashMap<(String, String), String> = HashMap::new();
    let mut own = |name: String, hosts: &[String], location: &str| {
        for host in hosts {
            if let Some(other) = owners.insert((name.clone(), host.clone()), location.to_owned()) {
                bail!("{other} and {location} both declare {name} on {host}");
            }
        }
        Ok(())
    };
    let mut work = Vec::new();
    let mut wanted: BTreeMap<String, BTreeSet<(ProcessKey, String)>> = BTreeMap::new();
    for process in declared.processes {
        let hosts = resolver.resolve(&process.hosts, &process.location).await?;
        own(format!("process {}", process.key), &hosts, &process.location)?;
        let known = wanted.entry(process.key.namespace.to_string()).or_default();
        known.extend(hosts.iter().map(|host| (process.key.clone(), host.clone())));
        work.push(plan_process(client, process, &hosts).await?);
    }
    for pool in declared.pools {
        let hosts = resolver.resolve(&pool.hosts, &pool.location).await?;
        own(format!("pool {}/{}", pool.setting.namespace, pool.setting.id), &hosts, &pool.location)?;
        work.push(plan_pool(client, pool, &hosts).await?);
    }
    if prune {
        for (namespace, wanted) in wanted {
            let query = ProcessQuery { namespace: Some(namespace), limit: Some(LIMIT_MAX), ..ProcessQuery::default() };
            let registered: Vec<ProcessView> = client.all_processes(&query).try_collect().await?;
            work.extend(superfluous(&registered, &wanted)?);
        }
    }
    Ok(work)
}

/// Resolves `all` and `business` to lists of hosts, with one query each.
struct HostResolver<'a> {
    client: &'a Client,
    known: HashMap<Option<u64>, Vec<String>>,
}

impl HostResolver<'_> {
    async fn resolve(&mut self, hosts: &Hosts, location: &str) -> Result<Vec<String>> {
        let business = match hosts {
            Hosts::These(hosts) => return Ok(hosts.clone()),
            Hosts::All => None,
            Hosts::Business(business) => Some(*business),
        };
        if let Some(known) = self.known.get(&business) {
            return Ok(known.clone());
        }
        let query = HostQuery { business, limit: Some(LIMIT_MAX), ..HostQuery::default() };
        let found: Vec<HostView> = self.client.all_hosts(&query).try_collect().await?;
        let found: Vec<String> = found.into_iter().map(|host| host.host).collect();
        if found.is_empty() {
            bail!("{location}: there are no such hosts");
        }
        self.known.insert(business, found.clone());
        Ok(found)
    }
}

/// The body of a registration on these hosts.
pub(super) fn on_hosts(body: &Map<String, Value>, hosts: &[String]) -> Value {
    let mut body = body.clone();
    body.insert("agent_id_list".into(), json!(hosts));
    Value::Object(body)
}

async fn plan_process(client: &Client, process: DeclaredProcess, hosts: &[String]) -> Result<Work> {
    let planned = client.plan_registration(&on_hosts(&process.body, hosts)).await;
    let planned = planned.map_err(|error| in_file(&process.location, error))?;
    let step = |(host, change): (&String, proctor_client::RegistrationChange)| Step {
        action: match (&change.refused, change.registered, change.changes.is_empty()) {
            (Some(_), _, _) => Action::Refused,
            (None, false, _) => Action::Create,
            (None, true, false) => Action::Change,
            (None, true, true) => Action::Unchanged,
        },
        kind: "process",
        name: process.key.to_string(),
        host: host.clone(),
        // For a new entry that is refused, only the reason matters.
        changes: if change.refused.is_some() && !change.registered { Vec::new() } else { change.changes },
        problem: change.refused.map(|refusal| refusal.localized.message),
    };
    let steps = hosts.iter().zip(planned.hosts).map(step).collect();
    Ok(Work { what: What::Register(process.body), steps })
}

/// What the server says about the body is a mistake in the file.
fn in_file(location: &str, error: ClientError) -> anyhow::Error {
    if let ClientError::Refused { status: 400, message, .. } = &error {
        return anyhow!("{location}: {message}");
    }
    anyhow::Error::new(error).context(format!("{location}: cannot be planned"))
}

async fn plan_pool(client: &Client, pool: DeclaredPool, hosts: &[String]) -> Result<Work> {
    let query = PoolQuery { namespace: Some(pool.setting.namespace.to_string()), ..PoolQuery::default() };
    let known = client.pools(&query).await.with_context(|| format!("{}: cannot be planned", pool.location))?;
    let steps = hosts.iter().map(|host| pool_step(&pool.setting, host, &known)).collect();
    Ok(Work { what: What::SetPool(pool.setting), steps })
}

fn pool_step(setting: &PoolSetting, host: &str, known: &[PoolView]) -> Step {
    let same = |pool: &&PoolView| {
        (pool.host == host || pool.agent.as_str() == host)
            && (&pool.namespace, &pool.id) == (&setting.namespace, &setting.id)
    };
    let now = known.iter().find(same).map(PoolView::setting);
    let changes = now.as_ref().map(|now| pool_changes(now, setting)).unwrap_or_default();
    let action = match (&now, changes.is_empty()) {
        (None, _) => Action::Create,
        (Some(_), false) => Action::Change,
        (Some(_), true) => Action::Unchanged,
    };
    let name = format!("{}/{}", setting.namespace.escaped(), setting.id);
    Step { action, kind: "pool", name, host: host.to_owned(), changes, problem: None }
}

fn pool_changes(now: &PoolSetting, then: &PoolSetting) -> Vec<Change> {
    let value = |setting| serde_json::to_value(setting).unwrap_or_default();
    let (now, then) = (value(now), value(then));
    let fields = then.as_object().into_iter().flatten();
    let changed = fields.filter(|(name, value)| now.get(name.as_str()) != Some(value));
    changed
        .map(|(name, value)| Change { path: name.clone(), from: now[name.as_str()].clone(), to: value.clone() })
        .collect()
}

/// What is registered but in no file; `wanted` names hosts by address or agent id.
fn superfluous(registered: &[ProcessView], wanted: &BTreeSet<(ProcessKey, String)>) -> Result<Vec<Work>> {
    let mut by_process: BTreeMap<ProcessKey, Vec<Step>> = BTreeMap::new();
    for process in registered {
        let key: ProcessKey = process.process.parse()?;
        let is_wanted = |host: &str| wanted.contains(&(key.clone(), host.to_owned()));
        if is_wanted(&process.host) || is_wanted(process.agent.as_str()) {
            continue;
        }
        let (name, host) = (process.process.clone(), process.host.clone());
        let step = Step { action: Action::Delete, kind: "process", name, host, changes: Vec::new(), problem: None };
        by_process.entry(key).or_default().push(step);
    }
    Ok(by_process.into_iter().map(|(key, steps)| Work { what: What::Unregister(key), steps }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(process: &str, host: &str, agent: &str) -> ProcessView {
        serde_json::from_value(json!({
            "process": process, "host": host, "agent": agent, "online": true, "phase": "running", "managed": true,
            "pid": 1, "cpu_percent": 0.0, "memory_percent": 0.0, "started_at": 0, "restarts": 0, "version": "",
            "reason": "", "lifetime": "resident", "generation": 1,
        }))
        .unwrap()
    }

    #[test]
    fn only_what_no_file_names_is_superfluous() {
        let key = |text: &str| text.parse::<ProcessKey>().unwrap();
        let wanted = BTreeSet::from([(key("w/a"), "0:10.0.0.1".to_owned()), (key("w/b"), "a-2".to_owned())]);
        let registered = [
            view("w/a", "0:10.0.0.1", "a-1"),
            view("w/a", "0:10.0.0.2", "a-2"),
            view("w/b", "0:10.0.0.2", "a-2"),
            view("w/c", "0:10.0.0.1", "a-1"),
        ];

        let work = superfluous(&registered, &wanted).unwrap();

        let steps: Vec<(&str, &str)> =
            work.iter().flat_map(|work| &work.steps).map(|step| (step.name.as_str(), step.host.as_str())).collect();
        assert_eq!(steps, [("w/a", "0:10.0.0.2"), ("w/c", "0:10.0.0.1")]);
    }

    #[test]
    fn a_pool_changes_only_where_a_field_differs() {
        let setting = |cpu: f64| -> PoolSetting {
            serde_json::from_value(json!({
                "namespace": "w", "id": "w", "cpu": cpu, "memory": 10.0, "cpu_weight": "usage",
                "memory_weight": "usage", "dry_run": false,
            }))
            .unwrap()
        };
        let mut known = serde_json::to_value(setting(10.0)).unwrap();
        known["host"] = json!("0:10.0.0.1");
        known["agent"] = json!("a-1");
        let known: Vec<PoolView> = vec![serde_json::from_value(known).unwrap()];

        assert_eq!(pool_step(&setting(10.0), "a-1", &known).action, Action::Unchanged);
        assert_eq!(pool_step(&setting(10.0), "0:10.0.0.2", &known).action, Action::Create);
        let changed = pool_step(&setting(20.0), "0:10.0.0.1", &known);
        assert_eq!(changed.action, Action::Change);
        assert_eq!(changed.changes, [Change { path: "cpu".into(), from: json!(10.0), to: json!(20.0) }]);
    }
}

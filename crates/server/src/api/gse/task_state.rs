//! task/get_task_state: a task by its agents instead of by its rows.

use std::collections::{HashMap, HashSet};

use proctor_model::{AgentId, Code, FieldError, messages};
use proctor_store::{HostLocation, TargetView, TaskView};
use serde::Serialize;

use super::decode::{self, NamedHost};
use super::{Call, Result, task};
use crate::api::error::ApiError;
use crate::control::HostRef;

#[derive(Debug, Serialize)]
pub(in crate::api) struct TaskState {
    result: Agents,
}

/// Every agent is in exactly one list, as the caller wrote it.
#[derive(Debug, Default, Serialize)]
struct Agents {
    state: &'static str,
    successed_agents: Vec<String>,
    /// An operation that took too long has failed; the rows of the task say so.
    timeout_agents: Vec<String>,
    failed_agents: Vec<String>,
    pending_agents: Vec<String>,
    offline_agents: Vec<String>,
    /// An operation survives the restart of its agent.
    restarted_agents: Vec<String>,
}

/// What became of all targets of one agent; the worst counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Succeeded,
    Failed,
    Offline,
    Pending,
}

/// Of the agents that the caller names, or of all agents of the task.
pub(in crate::api) async fn of_task(call: Call) -> Result<TaskState> {
    let (id, named) = call.params(decode::task_state_query).await?;
    let task = task(&call, &id).await?;
    let fates = fates(&task);
    let asked: Vec<(String, Fate)> = match named {
        None => {
            let names = names_in_order(&task);
            let bound = bound_ids(&call, &task).await?;
            let known_as = |name: String| bound.get(&name).cloned().unwrap_or(name);
            names.into_iter().map(|name| (fates[&name], known_as(name))).map(|(fate, name)| (name, fate)).collect()
        }
        Some(named) => {
            let names = real_names(&call, &named, &task).await?;
            let fate = |((index, named), name): ((usize, NamedHost), String)| match fates.get(&name) {
                Some(fate) => Ok((named.prefix(), *fate)),
                None => Err(stranger(index, &named.prefix())),
            };
            named.into_iter().enumerate().zip(names).map(fate).collect::<std::result::Result<_, _>>()?
        }
    };
    Ok(TaskState { result: sorted(asked) })
}

fn stranger(index: usize, id: &str) -> ApiError {
    FieldError::new(format!("agent_id_list[{index}]"), messages::not_a_target(id)).into()
}

/// How [`fates`] calls the agents that the caller names.
async fn real_names(call: &Call, named: &[NamedHost], task: &TaskView) -> Result<Vec<String>> {
    let refs: Vec<HostRef> = named.iter().map(|named| named.host.clone()).collect();
    let records = call.control.sites(&refs).await?;
    let reached: HashSet<&AgentId> = task.targets.iter().filter_map(|view| view.target.reached()).collect();
    let is_target = |record: &HostLocation| reached.contains(&record.agent);
    let name = |(named, record): (&NamedHost, Option<HostLocation>)| match record.filter(is_target) {
        Some(record) => record.agent.to_string(),
        // Not known, or refused: then the task has it as it was named.
        None => named.host.key().map_or_else(|| named.prefix(), |key| key.to_string()),
    };
    Ok(named.iter().zip(records).map(name).collect())
}

/// The ids that agents of the task were bound to, by their own.
async fn bound_ids(call: &Call, task: &TaskView) -> Result<HashMap<String, String>> {
    let agents: HashSet<&AgentId> = task.targets.iter().filter_map(|view| view.target.reached()).collect();
    let refs: Vec<HostRef> = agents.into_iter().cloned().map(HostRef::Agent).collect();
    let bound = |site: HostLocation| Some((site.agent.to_string(), site.alias?.to_string()));
    Ok(call.control.sites(&refs).await?.into_iter().flatten().filter_map(bound).collect())
}

/// By agent id, or by `cloud:ip` for a host that has no agent.
fn fates(task: &TaskView) -> HashMap<String, Fate> {
    let mut fates = HashMap::new();
    for target in &task.targets {
        let fate = fate(target);
        let worst = fates.entry(name(target)).or_insert(fate);
        *worst = fate.max(*worst);
    }
    fates
}

/// Every agent of the task once.
fn names_in_order(task: &TaskView) -> Vec<String> {
    let mut taken = HashSet::new();
    task.targets.iter().map(name).filter(|name| taken.insert(name.clone())).collect()
}

fn name(target: &TargetView) -> String {
    let target = &target.target;
    let agent = target.agent.as_ref().map(AgentId::to_string);
    agent.or_else(|| target.host.map(|host| host.to_string())).unwrap_or_else(|| before_process(&target.row_key))
}

/// The id as it was written: what comes before `:namespace:name`.
fn before_process(row_key: &str) -> String {
    row_key.rsplitn(3, ':').last().unwrap_or_default().to_owned()
}

fn fate(target: &TargetView) -> Fate {
    match target.outcome.as_ref().map(|outcome| outcome.code) {
        None | Some(Code::Handling) => Fate::Pending,
        Some(Code::Success) => Fate::Succeeded,
        Some(Code::AgentAbsent) => Fate::Offline,
        Some(_) => Fate::Failed,
    }
}

fn sorted(asked: Vec<(String, Fate)>) -> Agents {
    let mut agents = Agents { state: overall(&asked), ..Agents::default() };
    for (id, fate) in asked {
        match fate {
            Fate::Succeeded => agents.successed_agents.push(id),
            Fate::Failed => agents.failed_agents.push(id),
            Fate::Offline => agents.offline_agents.push(id),
            Fate::Pending => agents.pending_agents.push(id),
        }
    }
    agents
}

/// Pending while nothing has ended, executing while something has not.
fn overall(asked: &[(String, Fate)]) -> &'static str {
    let is = |fate: Fate| move |(_, other): &(String, Fate)| *other == fate;
    if asked.iter().all(is(Fate::Succeeded)) {
        "successed"
    } else if asked.iter().all(is(Fate::Pending)) {
        "pending"
    } else if asked.iter().any(is(Fate::Pending)) {
        "executing"
    } else {
        "failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_as_far_as_its_agents() {
        let state = |fates: &[Fate]| overall(&fates.iter().map(|fate| (String::new(), *fate)).collect::<Vec<_>>());

        assert_eq!(state(&[Fate::Succeeded, Fate::Succeeded]), "successed");
        assert_eq!(state(&[Fate::Pending, Fate::Pending]), "pending");
        assert_eq!(state(&[Fate::Pending, Fate::Offline]), "executing");
        assert_eq!(state(&[Fate::Succeeded, Fate::Offline]), "failed");
        assert_eq!(state(&[Fate::Succeeded, Fate::Failed]), "failed");
    }

    #[test]
    fn an_id_is_found_again_in_its_row_key() {
        assert_eq!(before_process("agent-1:ns:name"), "agent-1");
        assert_eq!(before_process("0:10.0.0.1:ns:name"), "0:10.0.0.1");
    }
}

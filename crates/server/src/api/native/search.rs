//! Searches everything the caller may read for one text.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

use axum::Json;
use axum::extract::State;
use proctor_api::{FoundHost, SearchQuery, SearchResult, TaskView};
use proctor_model::{Class, FieldError, TaskId, messages};
use proctor_store::{Fleet, FleetFilter, FleetHost, ProcessQuery, TaskQuery};
use uuid::Uuid;

use super::body::Params;
use super::caller::Authenticated;
use super::processes::search_text;
use super::{ApiState, Result, tasks};
use crate::control::{Caller, SeenFleet, is_inside};

const LIMIT: u32 = 8;
const LIMIT_MAX: u32 = 50;
/// Shorter beginnings of a task's id are no id.
const ID_DIGITS_MIN: usize = 4;

/// Finds processes, hosts, tasks and namespaces by part of their names.
#[utoipa::path(get, path = "/search", operation_id = "search", params(SearchQuery), tag = "overview",
               responses((status = 200, body = SearchResult)))]
pub(super) async fn search(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<SearchQuery>,
) -> Result<Json<SearchResult>> {
    let limit = query.limit.unwrap_or(LIMIT);
    if limit > LIMIT_MAX {
        return Err(FieldError::new("limit", messages::more_than(limit, LIMIT_MAX)).into());
    }
    let text = search_text(&query.q)?.to_lowercase();
    let found_tasks = match task_ids(&text) {
        None => Vec::new(),
        Some(ids) => {
            let wanted = TaskQuery { ids: Some(ids), limit, ..TaskQuery::default() };
            state.control.tasks(&caller.who, wanted).await?
        }
    };
    let (limit, who) = (limit as usize, caller.who.clone());
    let found = move |SeenFleet { fleet, .. }: &SeenFleet| {
        let (processes, namespaces) = names(fleet, &who, &text);
        SearchResult {
            processes: best(processes.into_iter(), &text, limit),
            hosts: hosts(fleet, &who, &text, limit),
            tasks: found_tasks.into_iter().map(tasks::view).collect::<Vec<TaskView>>(),
            namespaces: best(namespaces.into_iter(), &text, limit),
        }
    };
    Ok(Json(state.border.fleet_work.run(&state.control, &caller.who, found).await?))
}

/// The processes and namespaces that have the text in their names, of those that the caller may see anywhere.
fn names(fleet: &Fleet, caller: &Caller, text: &str) -> (Vec<String>, BTreeSet<String>) {
    let scopes = caller.permissions.scopes(Class::Read);
    let has_text: Vec<bool> = fleet.keys.iter().map(|key| key.to_string().to_lowercase().contains(text)).collect();
    let query = ProcessQuery { scopes: Some(scopes.clone()), ..ProcessQuery::default() };
    let filter = FleetFilter::new(fleet, &query);
    let mut seen = HashSet::new();
    for process in fleet.processes.iter().filter(|process| has_text[process.key as usize]) {
        if !seen.contains(&process.key) && filter.holds(process) {
            seen.insert(process.key);
        }
    }
    let mut keys: Vec<u32> = seen.into_iter().collect();
    keys.sort_unstable();
    let keys = keys.into_iter().map(|key| &fleet.keys[key as usize]);
    let namespaces = keys.clone().map(|key| key.namespace.to_string());
    let namespaces = namespaces.filter(|namespace| namespace.to_lowercase().contains(text)).collect();
    (keys.map(ToString::to_string).collect(), namespaces)
}

/// Those that begin with the text, as a whole or behind the slash, then the others; each in their order.
fn best(names: impl Iterator<Item = String>, text: &str, limit: usize) -> Vec<String> {
    let begins = |name: &String| {
        let name = name.to_lowercase();
        name.starts_with(text) || name.split_once('/').is_some_and(|(_, name)| name.starts_with(text))
    };
    let (mut first, rest): (Vec<String>, Vec<String>) = names.partition(begins);
    first.extend(rest);
    first.truncate(limit);
    first
}

fn hosts(fleet: &Fleet, caller: &Caller, text: &str, limit: usize) -> Vec<FoundHost> {
    let scopes = caller.permissions.scopes(Class::Read);
    let has_text = |host: &&FleetHost| {
        let ids = [Some(&host.site.agent), host.site.alias.as_ref()];
        host.site.key.to_string().contains(text)
            || host.hostname.to_lowercase().contains(text)
            || ids.into_iter().flatten().any(|agent| agent.as_str().to_lowercase().contains(text))
    };
    let found = fleet.hosts.iter().filter(|host| is_inside(scopes, host)).filter(has_text).take(limit);
    let view = |host: &FleetHost| FoundHost {
        host: host.site.key.to_string(),
        hostname: host.hostname.to_string(),
        online: host.online,
    };
    found.map(view).collect()
}

/// The ids that begin like this.
fn task_ids(text: &str) -> Option<RangeInclusive<TaskId>> {
    let digits: String = text.strip_prefix("gsetask:").unwrap_or(text).chars().filter(|c| *c != '-').collect();
    let is_id = (ID_DIGITS_MIN..=32).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bound = |fill: char| {
        let all: String = digits.chars().chain(std::iter::repeat(fill)).take(32).collect();
        Uuid::try_parse(&all).ok().map(TaskId::from_uuid)
    };
    if is_id { Some(bound('0')?..=bound('f')?) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_task_id_is_a_range_of_ids() {
        let range = |text: &str| task_ids(text).map(|ids| (ids.start().to_string(), ids.end().to_string()));
        let ids = ("GSETASK:0192abcd000000000000000000000000", "GSETASK:0192abcdffffffffffffffffffffffff");

        assert_eq!(range("0192abcd"), Some((ids.0.to_owned(), ids.1.to_owned())));
        assert_eq!(range("gsetask:0192-abcd"), Some((ids.0.to_owned(), ids.1.to_owned())));
        for other in ["019", "nginx", "0192abcx", &"0".repeat(33)] {
            assert_eq!(range(other), None, "{other}");
        }
    }

    #[test]
    fn what_begins_with_the_text_comes_first() {
        let names = ["a/xnginx", "nginx/a", "web/Nginx", "web/my-nginx"].map(str::to_owned);

        assert_eq!(best(names.into_iter(), "nginx", 3), ["nginx/a", "web/Nginx", "a/xnginx"]);
    }
}

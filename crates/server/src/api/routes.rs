//! The table of the compatible families: every path and method, and the capability behind it.
//!
//! Promised: the router is built from [`table`] and nothing else, so what the table says about a route (its class of
//! operations, whether it changes anything) is true of what is served.
//! Absent: the native API, which has its own table.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use proctor_model::Class;
use proctor_store::RegisterMode;
use tower_http::catch_panic::CatchPanicLayer;

use super::family::Family;
use super::gse::decode::KeyStyle;
use super::request::Call;
use super::response::{PanicAnswer, ResponseWriter};
use super::{ApiState, RouteInfo, family, gse, job, unknown_path};

/// A capability, in whatever dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Capability {
    Register,
    Update,
    Unregister,
    Operate,
    OperateWithSpec,
    OperateBatch,
    Result,
    Status,
    StatusById,
    StatusOfNamespace,
    SetGroups,
    Groups,
    BindAgentIds,
    AgentStatus,
    AgentInfo,
    AgentStates,
    AgentInfos,
    TaskState,
    JobManage,
    JobOperate,
    JobOperateScripts,
    JobResult,
}

use Capability::{
    AgentInfo, AgentInfos, AgentStates, AgentStatus, BindAgentIds, Groups, JobManage, JobOperate, JobOperateScripts,
    JobResult, Operate, OperateBatch, OperateWithSpec, Register, Result as TaskResult, SetGroups, Status, StatusById,
    StatusOfNamespace, TaskState, Unregister, Update,
};

impl Capability {
    /// The class that a caller needs at least; an operation that stores a spec needs `register` too.
    pub(crate) fn class(self) -> Class {
        match self {
            Register | Update | Unregister => Class::Register,
            Operate | OperateWithSpec | OperateBatch | JobManage | JobOperate | JobOperateScripts => Class::Operate,
            SetGroups => Class::Limits,
            BindAgentIds => Class::Admin,
            TaskResult | Status | StatusById | StatusOfNamespace | Groups | AgentStatus | AgentInfo | AgentStates
            | AgentInfos | TaskState | JobResult => Class::Read,
        }
    }

    pub(crate) fn mutates(self) -> bool {
        self.class() != Class::Read
    }
}

/// What the ESB and the gateway offer under the same names.
const SHARED: [(&str, Capability); 10] = [
    ("register_proc_info", Register),
    ("update_proc_info", Update),
    ("unregister_proc_info", Unregister),
    ("operate_proc_v2", OperateWithSpec),
    ("operate_proc_multi", OperateBatch),
    ("get_proc_operate_result_v2", TaskResult),
    ("get_proc_status_v2", StatusById),
    ("sync_proc_status", StatusOfNamespace),
    ("set_process_group_info", SetGroups),
    ("get_process_group_info", Groups),
];

const ESB_ONLY: [(&str, Capability); 5] = [
    ("operate_proc", Operate),
    ("get_proc_operate_result", TaskResult),
    ("get_proc_status", Status),
    ("get_agent_status", AgentStatus),
    ("get_agent_info", AgentInfo),
];

const GATEWAY_ONLY: [(&str, Capability); 4] = [
    ("proc/upgrade_to_agent_id", BindAgentIds),
    ("cluster/list_agent_state", AgentStates),
    ("cluster/list_agent_info", AgentInfos),
    ("task/get_task_state", TaskState),
];

/// Queries are GET with a JSON body.
const BACKEND: [(Method, &str, Capability); 13] = [
    (Method::POST, "v1/proc/procinfo", Register),
    (Method::PUT, "v1/proc/procinfo", Update),
    (Method::DELETE, "v1/proc/procinfo", Unregister),
    (Method::POST, "v1/proc/operate", Operate),
    (Method::GET, "v1/proc/operate", TaskResult),
    (Method::GET, "v1/proc/status", Status),
    (Method::GET, "v1/proc/syncstatus", StatusOfNamespace),
    (Method::POST, "v1/proc/groupinfo", SetGroups),
    (Method::GET, "v1/proc/groupinfo", Groups),
    (Method::POST, "v2/proc/operate", OperateWithSpec),
    (Method::GET, "v2/proc/operate", TaskResult),
    (Method::POST, "v2/proc/multioperate", OperateBatch),
    (Method::GET, "v2/proc/status", StatusById),
];

const JOBS: [(&str, Capability); 4] = [
    ("manage_proc", JobManage),
    ("operate_process", JobOperate),
    ("operate_proc", JobOperateScripts),
    ("get_proc_result", JobResult),
];

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) family: Family,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) capability: Capability,
}

impl Route {
    pub(crate) fn info(&self) -> RouteInfo {
        RouteInfo {
            method: self.method.clone(),
            path: self.path.clone(),
            class: Some(self.capability.class()),
            mutates: self.capability.mutates(),
        }
    }
}

/// Every route of every compatible family.
pub(crate) fn table() -> Vec<Route> {
    // The ESB and JOB take both methods for everything; a gateway's resources have one.
    let esb = SHARED.into_iter().chain(ESB_ONLY).map(|(name, capability)| (name.to_owned(), capability));
    let esb = esb.flat_map(|(name, capability)| both(name, capability));
    let gateway = SHARED.into_iter().map(|(name, capability)| (format!("proc/{name}"), capability));
    let gateway = gateway.chain(GATEWAY_ONLY.map(|(name, capability)| (name.to_owned(), capability)));
    let gateway = gateway.map(|(name, capability)| (Method::POST, name, capability));
    let backend = BACKEND.map(|(method, name, capability)| (method, name.to_owned(), capability));
    let job = JOBS.into_iter().flat_map(|(name, capability)| both(name.to_owned(), capability));
    let mut routes = Vec::new();
    let mut add = |family: Family, (method, name, capability): (Method, String, Capability)| {
        for prefix in family.prefixes() {
            let path = format!("{prefix}/{name}");
            routes.push(Route { family, method: method.clone(), path, capability });
        }
    };
    esb.for_each(|route| add(Family::GseEsb, route));
    gateway.for_each(|route| add(Family::GseGateway, route));
    backend.into_iter().for_each(|route| add(Family::GseBackend, route));
    job.for_each(|route| add(Family::Job, route));
    routes
}

fn both(name: String, capability: Capability) -> [(Method, String, Capability); 2] {
    [(Method::POST, name.clone(), capability), (Method::GET, name, capability)]
}

/// A panic, or a method that nothing serves, is answered in the family's own shape.
pub(super) fn router() -> Router<ApiState> {
    let mut router = Router::new();
    for route in table() {
        let handler = endpoint(&route).layer(CatchPanicLayer::custom(PanicAnswer(route.family)));
        router = router.route(&route.path, handler);
    }
    router.method_not_allowed_fallback(unknown_path)
}

/// Authentication and parsing, then the capability, then the envelope of the family.
fn endpoint(route: &Route) -> MethodRouter<ApiState> {
    let (family, capability) = (route.family, route.capability);
    let handler = async move |State(state): State<ApiState>, request: Request| {
        let dressing = ResponseWriter::new(family, request.headers());
        match Box::pin(Call::read(state, family, capability.class(), request)).await {
            Ok(call) => Box::pin(carry_out(capability, call, &dressing)).await,
            Err(error) => dressing.failure(&error),
        }
    };
    let filter = MethodFilter::try_from(route.method.clone()).expect("the table holds only ordinary methods");
    on(filter, handler)
}

async fn carry_out(capability: Capability, call: Call, dressing: &ResponseWriter) -> Response {
    match capability {
        Register => dressing.answer(gse::register(call, RegisterMode::Create).await),
        Update => dressing.answer(gse::register(call, RegisterMode::Upsert).await),
        Unregister => dressing.answer(gse::unregister(call).await),
        Operate => dressing.answer(gse::operate(call, family::GSE_V1, gse::decode::operation_v1).await),
        OperateWithSpec => dressing.answer(gse::operate(call, family::GSE_V2, gse::decode::operation_v2).await),
        OperateBatch => dressing.answer(gse::operate(call, family::GSE_V2, gse::decode::batch).await),
        TaskResult => dressing.written(gse::result(call).await),
        Status => dressing.answer(gse::status::of_hosts(call, KeyStyle::WithSupplier).await),
        StatusById => dressing.answer(gse::status::of_hosts(call, KeyStyle::WithoutSupplier).await),
        StatusOfNamespace => dressing.answer(gse::status::of_namespace(call).await),
        SetGroups => dressing.answer(gse::set_pools(call).await),
        Groups => dressing.answer(gse::status::pools(call).await),
        BindAgentIds => dressing.answer(gse::agents::bind_ids(call).await),
        AgentStatus => dressing.answer(gse::agents::status(call).await),
        AgentInfo => dressing.answer(gse::agents::info(call).await),
        AgentStates => dressing.answer(gse::agents::states(call).await),
        AgentInfos => dressing.answer(gse::agents::infos(call).await),
        TaskState => dressing.answer(gse::task_state::of_task(call).await),
        JobManage => dressing.answer(job::submit(call, job::decode::manage_proc).await),
        JobOperate => dressing.answer(job::submit(call, job::decode::operate_process).await),
        JobOperateScripts => dressing.answer(job::submit(call, job::decode::operate_proc).await),
        JobResult => dressing.written(job::result(call).await),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_path_is_there_twice_with_one_method() {
        let table = table();

        let unique: HashSet<(String, String)> =
            table.iter().map(|route| (route.method.to_string(), route.path.clone())).collect();

        assert_eq!(unique.len(), table.len());
        // 15 names on the ESB by two methods, 14 on three gateway paths, 13 backend calls, 4 of JOB.
        assert_eq!(table.len(), 15 * 2 + 14 * 3 + 13 + 4 * 2 * 2);
    }

    #[test]
    fn every_prefix_answers_in_the_shape_of_its_own_family() {
        for route in table() {
            assert_eq!(Family::of_path(&route.path), route.family, "{}", route.path);
        }
    }
}

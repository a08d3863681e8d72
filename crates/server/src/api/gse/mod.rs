//! The GSE families: the ESB's and the gateway's, in both generations.
//!
//! Promised: one function for each capability, mounted on every path that offers it. Rows are keyed
//! by the capability's generation, not by the path it was called on. A task can be read through
//! either generation's result call.
//! Absent: `/procapi`, upgrade_to_agent_id, task/get_task_state.

mod agents;
pub(super) mod decode;
mod encode;
mod status;

use axum::Router;
use proctor_store::RegisterMode;
use serde::Serialize;
use tower_http::catch_panic::CatchPanicLayer;

use super::answer::PanicAnswer;
use super::error::{ApiError, Problem};
use super::family::{self, Family};
use super::request::Call;
use super::rows::{Row, Rows};
use super::{ApiState, endpoint, unknown_path};
use crate::control::{Submission, SubmittedItem};
use decode::KeyStyle;
use proctor_model::{FieldError, Outcome};
use serde_json::Value;

type Result<T> = std::result::Result<T, ApiError>;

pub(super) fn router() -> Router<ApiState> {
    let mut router = Router::new().nest("/api/c/compapi/v2/gse", esb());
    for prefix in Family::GATEWAY_PREFIXES {
        router = router.nest(prefix, gateway());
    }
    router
}

fn esb() -> Router<ApiState> {
    let family = Family::GseEsb;
    let routes = shared(family)
        .route("/operate_proc", endpoint(family, |call| operate(call, family::GSE_V1, decode::operation_v1)))
        .route("/get_proc_operate_result", endpoint(family, result))
        .route("/get_proc_status", endpoint(family, |call| status::of_hosts(call, KeyStyle::WithSupplier)))
        .route("/get_agent_status", endpoint(family, agents::status))
        .route("/get_agent_info", endpoint(family, agents::info));
    guarded(routes, family)
}

fn gateway() -> Router<ApiState> {
    let family = Family::GseGateway;
    let routes = Router::new()
        .nest("/proc", shared(family))
        .route("/cluster/list_agent_state", endpoint(family, agents::list))
        .route("/cluster/list_agent_info", endpoint(family, agents::list));
    guarded(routes, family)
}

/// What both families offer.
fn shared(family: Family) -> Router<ApiState> {
    Router::new()
        .route("/register_proc_info", endpoint(family, |call| register(call, RegisterMode::Create)))
        .route("/update_proc_info", endpoint(family, |call| register(call, RegisterMode::Upsert)))
        .route("/unregister_proc_info", endpoint(family, unregister))
        .route("/operate_proc_v2", endpoint(family, |call| operate(call, family::GSE_V2, decode::operation_v2)))
        .route("/operate_proc_multi", endpoint(family, |call| operate(call, family::GSE_V2, decode::batch)))
        .route("/get_proc_operate_result_v2", endpoint(family, result))
        .route("/get_proc_status_v2", endpoint(family, |call| status::of_hosts(call, KeyStyle::WithoutSupplier)))
        .route("/sync_proc_status", endpoint(family, status::of_namespace))
        .route("/set_process_group_info", endpoint(family, set_pools))
        .route("/get_process_group_info", endpoint(family, status::pools))
}

/// A panic, or a method that nothing serves, is answered in the family's own shape.
pub(super) fn guarded(routes: Router<ApiState>, family: Family) -> Router<ApiState> {
    routes.route_layer(CatchPanicLayer::custom(PanicAnswer(family))).method_not_allowed_fallback(unknown_path)
}

async fn register(call: Call, mode: RegisterMode) -> Result<Rows<&'static str>> {
    let (process, spec) = decode::registration(&call.params)?;
    let outcomes = call.control.register(&process.key, &spec, &process.hosts, mode).await?;
    Ok(plain_rows(process.row_keys, &outcomes))
}

async fn unregister(call: Call) -> Result<Rows<&'static str>> {
    let process = decode::unregistration(&call.params)?;
    let outcomes = call.control.unregister(&process.key, &process.hosts).await?;
    Ok(plain_rows(process.row_keys, &outcomes))
}

async fn set_pools(call: Call) -> Result<Rows<&'static str>> {
    let change = decode::pool_change(&call.params)?;
    let outcomes = call.control.set_pools(&change.hosts, &change.pools).await?;
    Ok(plain_rows(change.row_keys, &outcomes))
}

/// Rows of the calls that answer at once; their content has no meaning.
fn plain_rows(row_keys: Vec<String>, outcomes: &[Outcome]) -> Rows<&'static str> {
    row_keys.into_iter().zip(outcomes).map(|(key, outcome)| (key, Row::finished(outcome, ""))).collect()
}

#[derive(Debug, Serialize)]
struct TaskAccepted {
    task_id: String,
}

async fn operate(
    call: Call,
    family: &'static str,
    read: fn(&Value) -> std::result::Result<Vec<SubmittedItem>, FieldError>,
) -> Result<TaskAccepted> {
    let items = read(&call.params)?;
    let task = call.control.submit(Submission { caller: call.caller, family, items }).await?;
    Ok(TaskAccepted { task_id: task.to_string() })
}

async fn result(call: Call) -> Result<Rows<String>> {
    let id = decode::task_id(&call.params)?;
    Ok(encode::rows(&task(&call, &id).await?))
}

/// The task with this id, in any family.
pub(super) async fn task(call: &Call, id: &str) -> Result<proctor_store::TaskView> {
    let task = match decode::known_form(id) {
        Some(id) => call.control.task(id).await?,
        None => None,
    };
    let shown: String = id.chars().take(128).collect();
    task.ok_or_else(|| ApiError::new(Problem::UnknownTask, format!("task '{shown}' is not known")))
}

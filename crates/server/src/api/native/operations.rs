//! Operations on registered processes: accepted here, done in the background.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use proctor_api::{Accepted, OperationRequest};
use proctor_model::FieldError;

use super::body::Body;
use super::caller::Authenticated;
use super::hosts::Chosen;
use super::{ApiState, Result};
use crate::control::{SpecSource, Submission, SubmitOptions, SubmittedItem, SubmittedTarget};

const FAMILY: &str = "native";

/// Asks for an operation with the spec that is registered on each host.
#[utoipa::path(post, path = "/operations", operation_id = "operate", request_body = OperationRequest,
               tag = "operations", responses((status = 202, body = Accepted)))]
pub(super) async fn submit(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<OperationRequest>,
) -> Result<(StatusCode, Json<Accepted>)> {
    let key = body.process.ok_or_else(|| FieldError::new("process", "is missing"))?.0;
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_registered(&state.control, &caller.who, &key).await?;
    let targets = hosts.into_iter().map(|host| SubmittedTarget { row_key: host.to_string(), host }).collect();
    let item = SubmittedItem { key, kind: Some(body.operation), spec: SpecSource::Registered, targets };
    let options = SubmitOptions::default();
    let submission = Submission { caller: caller.who, family: FAMILY, items: vec![item], options };
    let task_id = state.control.submit(submission).await?.task;
    Ok((StatusCode::ACCEPTED, Json(Accepted { task_id: Some(task_id), plan: None })))
}

//! Operations on registered processes: accepted here, done in the background.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use proctor_model::{OperationKind, ProcessKey};
use serde_json::{Value, json};

use super::body::{Body, only};
use super::caller::Authenticated;
use super::hosts::Chosen;
use super::{ApiState, Result};
use crate::api::fields::parsed;
use crate::control::{SpecSource, Submission, SubmittedItem, SubmittedTarget};

const FAMILY: &str = "native";

pub(super) async fn submit(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>)> {
    let body = only(&body, &["operation", "process", "hosts", "all"])?;
    let kind: OperationKind = body.required("operation", parsed)?;
    let key: ProcessKey = body.required("process", parsed)?;
    let hosts = Chosen::of(body)?.where_registered(&state.control, &key).await?;
    let targets = hosts.into_iter().map(|host| SubmittedTarget { row_key: host.to_string(), host }).collect();
    let item = SubmittedItem { key, kind: Some(kind), spec: SpecSource::Registered, targets };
    let submission = Submission { caller: caller.who, family: FAMILY, items: vec![item] };
    let task_id = state.control.submit(submission).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "task_id": task_id }))))
}

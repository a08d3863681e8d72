//! Events: the newest, those after a place, and waiting for those to come.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use proctor_model::{EventKind, FieldError};
use proctor_store::EventQuery;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Params, number_param};
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts::parse_host;
use super::{ApiState, Result};
use crate::event_json::event_json;

const LIMIT: u64 = 100;
const LIMIT_MAX: u64 = 1000;
/// Below what proxies in front usually wait for.
const WAIT_SECS_MAX: u64 = 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    after: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    host: Option<String>,
    #[serde(rename = "type")]
    kinds: Option<String>,
    limit: Option<String>,
    wait: Option<String>,
}

pub(super) async fn list(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(params): Params<EventParams>,
) -> Result<Json<Value>> {
    let wait = bounded("wait", params.wait.as_deref(), 0, WAIT_SECS_MAX)?;
    let mut query = query(&params)?;
    if let Some(host) = &params.host {
        let host = parse_host(host).map_err(|error| error.inside("host"))?;
        let Some(record) = state.control.resolve(std::slice::from_ref(&host)).await?.remove(0) else {
            return Err(NativeError::new(Kind::NotFound, format!("host {host} has never enrolled an agent")));
        };
        query.agent = Some(record.agent);
    }
    let page = state.control.follow_events(query, Duration::from_secs(wait)).await?;
    let events: Vec<Value> = page.events.iter().map(event_json).collect();
    Ok(Json(json!({ "events": events, "next": page.next })))
}

fn query(params: &EventParams) -> std::result::Result<EventQuery, FieldError> {
    let limit = bounded("limit", params.limit.as_deref(), LIMIT, LIMIT_MAX)?;
    Ok(EventQuery {
        after: params.after.as_deref().map(|text| number_param("after", Some(text), 0)).transpose()?,
        namespace: params.namespace.as_deref().map(str::parse).transpose()?,
        name: params.name.as_deref().map(str::parse).transpose()?,
        kinds: params.kinds.as_deref().map_or(Ok(Vec::new()), kinds)?,
        limit: u32::try_from(limit).expect("LIMIT_MAX is small"),
        ..EventQuery::default()
    })
}

/// Names with commas between them.
fn kinds(text: &str) -> std::result::Result<Vec<EventKind>, FieldError> {
    text.split(',').map(|name| name.trim().parse()).collect()
}

fn bounded(field: &str, text: Option<&str>, default: u64, max: u64) -> std::result::Result<u64, FieldError> {
    let number = number_param(field, text, default)?;
    if number > max {
        return Err(FieldError::new(field, format!("{number} is more than {max}")));
    }
    Ok(number)
}

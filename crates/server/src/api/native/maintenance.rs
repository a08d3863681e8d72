//! Hosts in maintenance, and the approval of new ones.

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{ApproveRequest, CordonRequest, CordonView, HostView, Removed};
use proctor_model::{FieldError, messages};
use proctor_runtime::clock;

use super::body::Body;
use super::caller::Authenticated;
use super::host_identity;
use super::hosts::{self, parse_host, unknown_host};
use super::{ApiState, Result};
use crate::api::native::error::{Kind, NativeError};
use crate::control::{self, Control, HostRef};

const KEY_CHARS_MAX: usize = 128;

/// Cordons a host for maintenance, or replaces its cordon: it accepts no start, restart or manage from the fleet,
/// continues to supervise, and its events reach no webhook.
///
/// Ends at `until`, after `ttl_secs`, or when it is removed.
#[utoipa::path(put, path = "/hosts/{host}/cordon", operation_id = "cordon_host", params(("host" = String, Path)),
               request_body = CordonRequest, tag = "hosts", responses((status = 200, body = CordonView)))]
pub(super) async fn cordon(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
    Body(body): Body<CordonRequest>,
) -> Result<Json<CordonView>> {
    let host = parse_host(&host).map_err(|error| error.inside("host"))?;
    let reason = control::cordon_reason(&body.reason)?;
    let until = control::cordon_until(body.until, body.ttl_secs, clock::unix_millis())?;
    let set = state.control.cordon(&caller.who, &host, reason, until).await?;
    let (_, cordon) = set.ok_or_else(|| unknown_host(&host))?;
    Ok(Json(hosts::cordon_view(&cordon)))
}

/// Ends the cordon of a host.
#[utoipa::path(delete, path = "/hosts/{host}/cordon", operation_id = "uncordon_host", params(("host" = String, Path)),
               tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn uncordon(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
) -> Result<Json<Removed>> {
    let host = parse_host(&host).map_err(|error| error.inside("host"))?;
    match state.control.uncordon(&caller.who, &host).await? {
        None => Err(unknown_host(&host)),
        Some(false) => Err(NativeError::new(Kind::NotFound, messages::host_is_not_cordoned(host))),
        Some(true) => Ok(Json(Removed { removed: format!("cordon of host {host}") })),
    }
}

/// Lets a host in that waits for approval: a new one, or one whose certificate has expired.
#[utoipa::path(post, path = "/hosts/{host}/approve", operation_id = "approve_host", params(("host" = String, Path)),
               request_body = Option<ApproveRequest>, tag = "hosts", responses((status = 200, body = HostView)))]
pub(super) async fn approve(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
    Body(body): Body<ApproveRequest>,
) -> Result<Json<HostView>> {
    let key = host_identity::key(&state.control, &host).await?;
    let found = state.control.resolve(&[HostRef::Key(key)]).await?.pop().flatten();
    let Some(record) = found else { return Err(host_identity::unknown(&key)) };
    // Also the key that is only read here: another one may have enrolled by the time of the change.
    let of_key = body.key.map(given_key).transpose()?.unwrap_or_else(|| record.key_fingerprint.clone());
    let target = format!("host {key} agent {} key {of_key}", record.agent);
    let work = async move |control: Control| control.approve_host(&key, &of_key).await;
    let was_waiting = caller.administer_telling(&state, "approve_host", [target], work, told_approved).await?;
    if was_waiting == Some(false) && !state.control.is_connected(&record.agent) {
        return Err(NativeError::new(Kind::Conflict, messages::host_does_not_wait(key)));
    }
    let found = state.control.resolve(&[HostRef::Key(key)]).await?.pop().flatten();
    let record = found.ok_or_else(|| host_identity::unknown(&key))?;
    Ok(Json(hosts::view(record, &state.control)))
}

/// As people write fingerprints.
fn given_key(text: String) -> std::result::Result<String, FieldError> {
    let key = text.trim().replace(':', "").to_ascii_lowercase();
    if key.is_empty() || key.len() > KEY_CHARS_MAX || !key.chars().all(|c| c.is_ascii_graphic()) {
        return Err(FieldError::new("key", messages::not_a_key_fingerprint()));
    }
    Ok(key)
}

fn told_approved(was_waiting: &Option<bool>) -> String {
    match was_waiting {
        Some(true) => "approved",
        Some(false) => "was not waiting",
        None => "not known",
    }
    .to_owned()
}

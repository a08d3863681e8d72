//! The relays of cloud areas. They enrol with a token of `POST /tokens` with `relay`.

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{RelayList, RelayView, Removed};
use proctor_model::{FieldError, RelayId, messages};
use proctor_runtime::clock;

use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::control::{Control, RelayState};

const MILLIS: i64 = 1000;

/// All relays that have enrolled, by cloud area.
#[utoipa::path(get, path = "/relays", operation_id = "relays", tag = "hosts",
               responses((status = 200, body = RelayList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<RelayList>> {
    let relays = state.control.relays().await?.into_iter().map(view).collect();
    Ok(Json(RelayList { relays }))
}

fn view(state: RelayState) -> RelayView {
    let RelayState { record, connections, agents, version } = state;
    let is_connected = connections > 0;
    let seen = if is_connected { Some(clock::unix_millis()) } else { record.last_seen_at };
    RelayView {
        relay: record.id,
        cloud: record.cloud,
        connected: is_connected,
        connections: u32::try_from(connections).unwrap_or(u32::MAX),
        agents: u32::try_from(agents).unwrap_or(u32::MAX),
        version,
        address: record.remote,
        enrolled_at: record.enrolled_at / MILLIS,
        last_seen_at: seen.map(|at| at / MILLIS),
        revoked_at: record.revoked_at.map(|at| at / MILLIS),
        key_fingerprint: record.key_fingerprint,
    }
}

/// Revokes a relay: it can no longer connect, and the sessions that it carries are closed at once.
#[utoipa::path(delete, path = "/relays/{relay}", operation_id = "revoke_relay", params(("relay" = String, Path)),
               tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn revoke(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<Removed>> {
    let relay: RelayId = text.parse().map_err(|error: FieldError| FieldError::new("relay", error.problem))?;
    let target = format!("relay {relay}");
    let of_relay = relay.clone();
    let work = move |control: Control| async move { control.revoke_relay(&of_relay).await };
    let audit_result = |was_there: &bool| if *was_there { "done" } else { "not known" }.to_owned();
    let was_there = state.control.administer(&caller.who, "revoke_relay", [&target], work, audit_result).await?;
    if was_there {
        return Ok(Json(Removed { removed: target }));
    }
    Err(NativeError::new(Kind::NotFound, messages::relay_never_enrolled(relay)))
}

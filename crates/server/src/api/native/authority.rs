//! The certificate authority, and its rotation in phases.

use axum::Json;
use axum::extract::State;
use proctor_api::{
    AuthorityBehind, AuthorityBehindWhy, AuthorityFollowers, AuthorityPhase, AuthorityStep, AuthorityView,
};
use proctor_pki::RotationPhase;

use super::body::Body;
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::control::{Behind, FollowCount, RotationStatus, RotationStep, WhyBehind};

const LISTED_MAX: usize = 1000;

/// The certificate authority, the phase of its rotation, and whom the next step would cut off.
#[utoipa::path(get, path = "/authority", operation_id = "authority", tag = "hosts",
               responses((status = 200, body = AuthorityView)))]
pub(super) async fn show(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<AuthorityView>> {
    Ok(Json(view(state.control.rotation_status(&caller.who).await?)))
}

/// Creates a successor of the authority and announces it to agents and relays, which then trust both.
#[utoipa::path(post, path = "/authority/prepare", operation_id = "prepare_authority", tag = "hosts",
               request_body = Option<AuthorityStep>, responses((status = 200, body = AuthorityView)))]
pub(super) async fn prepare(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(step): Body<AuthorityStep>,
) -> Result<Json<AuthorityView>> {
    take(&caller, &state, RotationStep::Prepare, step).await
}

/// From now on the successor issues certificates: of the link, of new agents, and of all others, which renew
/// theirs.
#[utoipa::path(post, path = "/authority/switch", operation_id = "switch_authority", tag = "hosts",
               request_body = Option<AuthorityStep>, responses((status = 200, body = AuthorityView)))]
pub(super) async fn switch(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(step): Body<AuthorityStep>,
) -> Result<Json<AuthorityView>> {
    take(&caller, &state, RotationStep::Switch, step).await
}

/// The old authority is no longer trusted.
#[utoipa::path(post, path = "/authority/finish", operation_id = "finish_authority", tag = "hosts",
               request_body = Option<AuthorityStep>, responses((status = 200, body = AuthorityView)))]
pub(super) async fn finish(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(step): Body<AuthorityStep>,
) -> Result<Json<AuthorityView>> {
    take(&caller, &state, RotationStep::Finish, step).await
}

/// One phase back: after a switch the old authority issues again; before it, the successor is dropped.
#[utoipa::path(post, path = "/authority/abort", operation_id = "abort_authority", tag = "hosts",
               request_body = Option<AuthorityStep>, responses((status = 200, body = AuthorityView)))]
pub(super) async fn abort(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(step): Body<AuthorityStep>,
) -> Result<Json<AuthorityView>> {
    take(&caller, &state, RotationStep::Abort, step).await
}

async fn take(
    caller: &Authenticated,
    state: &ApiState,
    step: RotationStep,
    AuthorityStep { force }: AuthorityStep,
) -> Result<Json<AuthorityView>> {
    match state.control.rotate_authority(&caller.who, step, force).await? {
        Ok(status) => Ok(Json(view(status))),
        Err(refusal) => Err(NativeError::new(Kind::Conflict, refusal)),
    }
}

fn view(status: RotationStatus) -> AuthorityView {
    AuthorityView {
        phase: match status.phase {
            RotationPhase::Idle => AuthorityPhase::Idle,
            RotationPhase::Prepared => AuthorityPhase::Prepared,
            RotationPhase::Switched => AuthorityPhase::Switched,
        },
        fingerprint: status.current,
        successor_fingerprint: status.successor,
        prepared_at: status.prepared_at,
        agents: followers(status.agents),
        relays: followers(status.relays),
        behind_total: number(status.behind.len()),
        behind: status.behind.into_iter().take(LISTED_MAX).map(behind).collect(),
        open_tokens: number(status.open_tokens),
    }
}

fn followers(FollowCount { total, trust_successor, new_certificate }: FollowCount) -> AuthorityFollowers {
    AuthorityFollowers {
        total: number(total),
        trust_successor: number(trust_successor),
        new_certificate: number(new_certificate),
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn behind(behind: Behind) -> AuthorityBehind {
    AuthorityBehind {
        host: behind.host.map(|host| host.to_string()),
        relay: behind.relay,
        why: match behind.why {
            WhyBehind::NotConnected => AuthorityBehindWhy::NotConnected,
            WhyBehind::CannotFollow => AuthorityBehindWhy::CannotFollow,
            WhyBehind::NotYet => AuthorityBehindWhy::NotYet,
        },
        version: behind.version,
        trusts_successor: behind.trusts_successor,
        has_new_certificate: behind.has_new_certificate,
    }
}

//! Join tokens and apps; only trusted apps may make them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::body::{Body, flag, only};
use super::caller::Authenticated;
use super::{ApiState, Result};
use crate::admin::{self, AppCode, TokenRequest};
use crate::api::fields::{count, parsed};

const USES: u32 = 1;
const TTL_SECS: u64 = 3600;

pub(super) async fn create_token(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>)> {
    caller.must_be_trusted(&state.control, "make join tokens").await?;
    let body = only(&body, &["uses", "ttl_secs", "cloud_id"])?;
    let ttl = Duration::from_secs(body.optional("ttl_secs", count)?.unwrap_or(TTL_SECS));
    let request =
        TokenRequest::new(body.optional("uses", count)?.unwrap_or(USES), ttl, body.optional("cloud_id", count)?)?;
    let (token, expires_at) = admin::create_token(state.control.store(), request).await?;
    tracing::info!(app = caller.who.app, user = caller.who.user, token = token.id, "a join token was made");
    let answer = json!({ "token": token.to_string(), "expires_at": expires_at / 1000 });
    Ok((StatusCode::CREATED, Json(answer)))
}

pub(super) async fn create_app(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>)> {
    caller.must_be_trusted(&state.control, "make apps").await?;
    let body = only(&body, &["code", "trusted"])?;
    let code: AppCode = body.required("code", parsed)?;
    let trusted = body.optional("trusted", flag)?.unwrap_or(false);
    let secret = admin::create_app(state.control.store(), &code, trusted).await?;
    tracing::info!(app = caller.who.app, user = caller.who.user, %code, trusted, "an app was made");
    let answer = json!({ "code": code.to_string(), "secret": secret, "trusted": trusted });
    Ok((StatusCode::CREATED, Json(answer)))
}

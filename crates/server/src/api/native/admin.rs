//! Join tokens and apps; only trusted apps may make them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use proctor_api::{CreatedApp, CreatedToken, NewApp, NewToken};

use super::body::Body;
use super::caller::Authenticated;
use super::{ApiState, Result};
use crate::admin::{self, AppCode, TokenRequest};

/// Makes a join token, with which agents enrol.
#[utoipa::path(post, path = "/tokens", operation_id = "create_token", request_body = NewToken, tag = "hosts",
               responses((status = 201, body = CreatedToken)))]
pub(super) async fn create_token(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>)> {
    caller.must_be_trusted(&state.control, "make join tokens").await?;
    let request = TokenRequest::new(body.uses, Duration::from_secs(body.ttl_secs), body.cloud_id)?;
    let (token, expires_at) = admin::create_token(state.control.store(), request).await?;
    tracing::info!(app = caller.who.app, user = caller.who.user, token = token.id, "a join token was made");
    let answer = CreatedToken { token: token.to_string(), expires_at: expires_at / 1000 };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// Makes an app. Its secret is shown only here.
#[utoipa::path(post, path = "/apps", operation_id = "create_app", request_body = NewApp, tag = "access",
               responses((status = 201, body = CreatedApp)))]
pub(super) async fn create_app(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewApp>,
) -> Result<(StatusCode, Json<CreatedApp>)> {
    caller.must_be_trusted(&state.control, "make apps").await?;
    let code: AppCode = body.code.parse()?;
    let secret = admin::create_app(state.control.store(), &code, body.trusted).await?;
    let trusted = body.trusted;
    tracing::info!(app = caller.who.app, user = caller.who.user, %code, trusted, "an app was made");
    let answer = CreatedApp { code: code.to_string(), secret, trusted };
    Ok((StatusCode::CREATED, Json(answer)))
}

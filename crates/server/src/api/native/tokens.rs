//! Join tokens for agents and relays. A secret is shown once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_api::{CreatedToken, DownloadList, DownloadView, NewToken, Removed, TokenList, TokenView};
use proctor_model::{FieldError, HostKey};
use proctor_pki::JoinToken;
use proctor_store::{JoinTokenRecord, Millis, Refusal, RelayTokenRecord};

use super::body::Body;
use super::caller::Authenticated;
use super::described;
use super::{ApiState, Result};
use crate::ServerError;
use crate::admin::TokenRequest;
use crate::api::downloads::Described;
use crate::control::Control;

type Made = std::result::Result<std::result::Result<(JoinToken, Millis), ServerError>, Refusal>;

/// Creates a join token for agents or relays. It is shown only here.
#[utoipa::path(post, path = "/tokens", operation_id = "create_token", request_body = NewToken, tag = "hosts",
               responses((status = 201, body = CreatedToken)))]
pub(super) async fn create(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>)> {
    let host = body.host.as_deref().map(parse_host).transpose()?;
    let ttl = Duration::from_secs(body.ttl_secs);
    let request = TokenRequest::new(body.uses, ttl, body.cloud_id)?
        .placing(body.business)
        .naming(host)?
        .for_relays(body.relay)?;
    let target = request.to_string();
    let business = body.business;
    let work = move |control: Control| async move {
        if let Some(business) = business
            && !control.businesses().await?.iter().any(|known| known.id == business)
        {
            return Ok(Err(Refusal::UnknownBusiness(business)));
        }
        Ok(Ok(control.create_token(request).await))
    };
    let audit_result = |made: &Made| match made {
        Ok(Ok((token, _))) => format!("done: join token {}", token.id),
        Ok(Err(error)) => format!("failed: {error}"),
        Err(refusal) => format!("refused: {refusal}"),
    };
    let (token, expires_at) =
        state.control.administer(&caller.who, "create_token", [target], work, audit_result).await???;
    let answer = CreatedToken { id: token.id.clone(), token: token.to_string(), expires_at: expires_at / 1000 };
    Ok((StatusCode::CREATED, Json(answer)))
}

fn parse_host(text: &str) -> std::result::Result<HostKey, FieldError> {
    text.parse().map_err(|error: FieldError| FieldError::new("host", error.problem))
}

/// All stored join tokens, without their secrets; the one that expires last comes first.
#[utoipa::path(get, path = "/tokens", operation_id = "tokens", tag = "hosts",
               responses((status = 200, body = TokenList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<TokenList>> {
    let of_agents = state.control.tokens().await?.into_iter().map(view);
    let of_relays = state.control.relay_tokens().await?.into_iter().map(relay_view);
    let mut tokens: Vec<TokenView> = of_agents.chain(of_relays).collect();
    tokens.sort_by_key(|token| std::cmp::Reverse(token.expires_at));
    Ok(Json(TokenList { tokens }))
}

fn view(record: JoinTokenRecord) -> TokenView {
    let JoinTokenRecord { token, used, refused } = record;
    TokenView {
        id: token.id,
        uses: token.uses,
        used,
        refused,
        expires_at: token.expires_at / 1000,
        cloud_id: token.cloud,
        business: token.business,
        host: token.host.map(|host| host.to_string()),
        relay: false,
    }
}

fn relay_view(record: RelayTokenRecord) -> TokenView {
    let RelayTokenRecord { token, used, refused } = record;
    TokenView {
        id: token.id,
        uses: token.uses,
        used,
        refused,
        expires_at: token.expires_at / 1000,
        cloud_id: Some(token.cloud),
        business: None,
        host: None,
        relay: true,
    }
}

/// The programs that new hosts can fetch from `/download/NAME`, with their digests.
#[utoipa::path(get, path = "/downloads", operation_id = "downloads", tag = "hosts",
               responses((status = 200, body = DownloadList)))]
pub(super) async fn downloads(_: Authenticated, State(state): State<ApiState>) -> Result<Json<DownloadList>> {
    let files = state.border.downloads.list(&state).await?;
    let view = |file: &Arc<Described>| DownloadView {
        name: file.name.clone(),
        bytes: file.bytes,
        sha256: file.sha256.clone(),
    };
    Ok(Json(DownloadList { link_port: state.control.link_port(), files: files.iter().map(view).collect() }))
}

/// Revokes a join token: nobody can enrol with it any more. Hosts that did so stay.
#[utoipa::path(delete, path = "/tokens/{id}", operation_id = "delete_token", params(("id" = String, Path)),
               tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn revoke(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<Removed>> {
    let what = format!("join token {id}");
    let before = described::join_token(&state.control, &id).await?;
    caller.remove(&state, "delete_token", what, before, async move |control| control.delete_token(&id).await).await
}

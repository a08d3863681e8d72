//! Webhooks: who gets which events; only trusted apps may see and change them, because an address
//! often holds a key.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_model::{EventKind, FieldError};
use proctor_store::{Webhook, WebhookFormat};
use serde_json::{Value, json};
use uuid::Uuid;

use super::body::{Body, only};
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::api::fields::{Fields, each, integer, parsed, text};
use crate::control::{NewWebhook, WEBHOOKS_MAX};

const SECRET_BYTES_MAX: usize = 256;

pub(super) async fn list(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<Value>> {
    caller.must_be_trusted(&state.control, "see webhooks").await?;
    let webhooks: Vec<Value> = state.control.webhooks().await?.iter().map(view).collect();
    Ok(Json(json!({ "webhooks": webhooks })))
}

pub(super) async fn add(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>)> {
    caller.must_be_trusted(&state.control, "add webhooks").await?;
    let new = webhook(only(&body, &["url", "namespace", "report_id", "types", "format", "secret"])?)?;
    let Some(webhook) = state.control.add_webhook(new).await? else {
        let message = format!("there are {WEBHOOKS_MAX} webhooks already: remove one first");
        return Err(NativeError::new(Kind::InvalidArgument, message));
    };
    tracing::info!(app = caller.who.app, user = caller.who.user, webhook = %webhook.id, "a webhook was added");
    Ok((StatusCode::CREATED, Json(view(&webhook))))
}

pub(super) async fn remove(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    caller.must_be_trusted(&state.control, "remove webhooks").await?;
    let unknown = || NativeError::new(Kind::NotFound, format!("there is no webhook '{id}'"));
    let uuid = Uuid::parse_str(&id).map_err(|_| unknown())?;
    if !state.control.remove_webhook(uuid).await? {
        return Err(unknown());
    }
    tracing::info!(app = caller.who.app, user = caller.who.user, webhook = %uuid, "a webhook was removed");
    Ok(Json(json!({ "id": uuid })))
}

fn webhook(body: Fields<'_>) -> std::result::Result<NewWebhook, FieldError> {
    let new = NewWebhook {
        url: body.required("url", parsed)?,
        namespace: body.optional("namespace", parsed)?,
        report_id: body.optional("report_id", integer)?,
        kinds: body.optional("types", |list| each(list, parsed::<EventKind>))?.unwrap_or_default(),
        format: body.optional("format", parsed)?.unwrap_or(WebhookFormat::Native),
        secret: body.optional("secret", secret)?,
    };
    let has_gse = new.kinds.iter().any(|kind| kind.gse_name().is_some());
    if new.format == WebhookFormat::Gse && !new.kinds.is_empty() && !has_gse {
        return Err(FieldError::new("types", "none of them exists in the format gse"));
    }
    Ok(new)
}

fn secret(value: &Value) -> std::result::Result<String, FieldError> {
    let secret = text(value)?;
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
        return Err(FieldError::new("", format!("must have 1 to {SECRET_BYTES_MAX} bytes")));
    }
    Ok(secret.to_owned())
}

/// Everything but the secret.
fn view(webhook: &Webhook) -> Value {
    json!({
        "id": webhook.id,
        "url": webhook.url,
        "namespace": webhook.namespace,
        "report_id": webhook.report_id,
        "types": webhook.kinds,
        "format": webhook.format.as_str(),
        "signed": webhook.secret.is_some(),
        "created_at": webhook.created_at / 1000,
        "cursor": webhook.cursor,
    })
}

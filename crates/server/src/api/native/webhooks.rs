//! Webhooks: who gets which events; only administrators may see and change them, because a URL often contains a key.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_api::{Removed, WebhookList, WebhookTested, WebhookView};
use proctor_model::{FieldError, messages};
use proctor_store::{Webhook, WebhookFormat};
use uuid::Uuid;

use super::body::Body;
use super::caller::Authenticated;
use super::described;
use super::error::{Kind, NativeError};
use super::localized::localized;
use super::{ApiState, Result};
use crate::control::{Control, NewWebhook, WEBHOOKS_MAX};
use crate::webhooks::WebhookTrial;

const SECRET_BYTES_MAX: usize = 256;

/// All webhooks, without their secrets.
#[utoipa::path(get, path = "/webhooks", operation_id = "webhooks", tag = "events",
               responses((status = 200, body = WebhookList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<WebhookList>> {
    let webhooks = state.control.webhooks().await?.iter().map(view).collect();
    Ok(Json(WebhookList { webhooks }))
}

/// Adds a webhook, which gets the events from now on.
#[utoipa::path(post, path = "/webhooks", operation_id = "add_webhook", request_body = proctor_api::NewWebhook,
               tag = "events", responses((status = 201, body = WebhookView)))]
pub(super) async fn add(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<proctor_api::NewWebhook>,
) -> Result<(StatusCode, Json<WebhookView>)> {
    let new = webhook(body)?;
    state.border.settings.webhooks.check(&new.url)?;
    let target = described::subscription(Some(&new.url), &new.kinds, new.namespace.as_ref());
    let work = |control: Control| async move { control.add_webhook(new).await };
    let added = |webhook: &Option<Webhook>| match webhook {
        Some(webhook) => format!("done: webhook {}", webhook.id),
        None => "too many".to_owned(),
    };
    let Some(webhook) = state.control.administer(&caller.who, "add_webhook", [target], work, added).await? else {
        let message = messages::too_many_webhooks(WEBHOOKS_MAX);
        return Err(NativeError::new(Kind::InvalidArgument, message));
    };
    Ok((StatusCode::CREATED, Json(view(&webhook))))
}

/// Removes a webhook.
#[utoipa::path(delete, path = "/webhooks/{id}", operation_id = "remove_webhook", params(("id" = String, Path)),
               tag = "events", responses((status = 200, body = Removed)))]
pub(super) async fn remove(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<Removed>> {
    let unknown = || NativeError::new(Kind::NotFound, messages::no_such_thing(format_args!("webhook '{id}'")));
    let uuid = Uuid::parse_str(&id).map_err(|_| unknown())?;
    let work = move |control: Control| async move { control.remove_webhook(uuid).await };
    let webhooks = state.control.webhooks().await?;
    let before = webhooks.iter().find(|webhook| webhook.id == uuid).map(described::webhook);
    let target = format!("webhook {uuid}: {}", before.as_deref().unwrap_or("not known"));
    let removed = |was_there: &bool| if *was_there { "done" } else { "was not there" }.to_owned();
    if !state.control.administer(&caller.who, "remove_webhook", [target], work, removed).await? {
        return Err(unknown());
    }
    Ok(Json(Removed { removed: uuid.to_string() }))
}

/// Sends a test request to a webhook, and returns the result.
#[utoipa::path(post, path = "/webhooks/{id}/test", operation_id = "test_webhook", params(("id" = String, Path)),
               tag = "events", responses((status = 200, body = WebhookTested)))]
pub(super) async fn test(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<WebhookTested>> {
    let unknown = || NativeError::new(Kind::NotFound, messages::no_such_thing(format_args!("webhook '{id}'")));
    let uuid = Uuid::parse_str(&id).map_err(|_| unknown())?;
    let webhooks = state.control.webhooks().await?;
    let webhook = webhooks.into_iter().find(|webhook| webhook.id == uuid).ok_or_else(unknown)?;
    let target = format!("webhook {uuid}: {}", described::webhook(&webhook));
    let reach = state.border.settings.webhooks.clone();
    let work = move |control: Control| async move { control.test_webhook(webhook, reach).await };
    let outcome = |trial: &Option<WebhookTrial>| match trial {
        Some(WebhookTrial { error: None, .. }) => "done: delivered".to_owned(),
        Some(WebhookTrial { error: Some(error), .. }) => format!("not delivered: {error}"),
        None => "too many tests".to_owned(),
    };
    let Some(trial) = state.control.administer(&caller.who, "test_webhook", [target], work, outcome).await? else {
        return Err(NativeError::new(Kind::TooManyRequests, messages::too_many_webhook_tests()));
    };
    let took_ms = u64::try_from(trial.took.as_millis()).unwrap_or(u64::MAX);
    let failure = trial.error.as_ref().map(localized).unwrap_or_default();
    Ok(Json(WebhookTested { delivered: trial.error.is_none(), status: trial.status, failure, took_ms }))
}

fn webhook(body: proctor_api::NewWebhook) -> std::result::Result<NewWebhook, FieldError> {
    let format = match body.format {
        proctor_api::WebhookFormat::Gse => WebhookFormat::Gse,
        proctor_api::WebhookFormat::Native => WebhookFormat::Native,
    };
    let has_gse = body.types.iter().any(|kind| kind.gse_name().is_some());
    if format == WebhookFormat::Gse && !body.types.is_empty() && !has_gse {
        return Err(FieldError::new("types", messages::no_event_type_in_gse()));
    }
    if body.secret.as_ref().is_some_and(|secret| secret.is_empty() || secret.len() > SECRET_BYTES_MAX) {
        return Err(FieldError::new("secret", messages::must_have_bytes(SECRET_BYTES_MAX)));
    }
    Ok(NewWebhook {
        url: body.url.parse().map_err(|error: FieldError| FieldError::new("url", error.problem))?,
        namespace: body.namespace.as_deref().map(str::parse).transpose()?,
        report_id: body.report_id,
        kinds: body.types,
        format,
        secret: body.secret,
    })
}

/// Everything but the secret.
fn view(webhook: &Webhook) -> WebhookView {
    WebhookView {
        id: webhook.id.to_string(),
        url: webhook.url.clone(),
        namespace: webhook.namespace.as_ref().map(ToString::to_string),
        report_id: webhook.report_id,
        types: webhook.kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
        format: webhook.format.as_str().to_owned(),
        signed: webhook.secret.is_some(),
        created_at: webhook.created_at / 1000,
        cursor: webhook.cursor,
    }
}

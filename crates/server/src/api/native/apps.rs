//! Apps. Secrets are shown once.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_api::{AppList, AppQuery, AppView, CreatedApp, NewApp, NewGrant, Removed};
use proctor_model::{FieldError, Subject, messages};
use proctor_runtime::clock;
use proctor_store::{App, Binding};
use uuid::Uuid;

use super::body::{Body, Params};
use super::caller::Authenticated;
use super::described;
use super::error::{Kind, NativeError};
use super::roles::{bounds, role_name, scope};
use super::{ApiState, Result};
use crate::admin::{self, AppCode, AppOptions};
use crate::control::Control;

/// All apps, without their secrets.
#[utoipa::path(get, path = "/apps", operation_id = "apps", tag = "access", responses((status = 200, body = AppList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<AppList>> {
    let view = |app: App| AppView { code: app.code, trusted: app.trusted, created_at: app.created_at / 1000 };
    Ok(Json(AppList { apps: state.control.apps().await?.into_iter().map(view).collect() }))
}

/// Creates an app. Its secret is shown only here.
#[utoipa::path(post, path = "/apps", operation_id = "create_app", request_body = NewApp, tag = "access",
               responses((status = 201, body = CreatedApp)))]
pub(super) async fn create(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewApp>,
) -> Result<(StatusCode, Json<CreatedApp>)> {
    let code: AppCode = body.code.parse()?;
    let bindings = bindings(&code, &body.roles)?;
    let trusted = body.trusted;
    let options = AppOptions { trusted, signing: body.signatures };
    let target = options.describe(&code, &bindings);
    let wanted = code.clone();
    let work = async move |control: Control| control.create_app(&wanted, options, bindings).await;
    let secret = caller.administer(&state, "create_app", [target], work).await?;
    Ok((StatusCode::CREATED, Json(CreatedApp { code: code.to_string(), secret, trusted })))
}

fn bindings(code: &AppCode, roles: &[NewGrant]) -> std::result::Result<Vec<Binding>, FieldError> {
    let one = |(index, grant): (usize, &NewGrant)| {
        let inside = |error: FieldError| error.inside(&format!("roles[{index}]"));
        Ok(Binding {
            id: Uuid::now_v7(),
            role: role_name("role", &grant.role).map_err(inside)?,
            subject: Subject::App(code.to_string()),
            scope: scope(&grant.scope).map_err(inside)?,
            bounds: bounds(&grant.allow_users, &grant.allow_roots).map_err(inside)?,
            created_at: clock::unix_millis(),
        })
    };
    roles.iter().enumerate().map(one).collect()
}

/// Replaces an app's secret. The new one is shown only here; the old one stops working.
#[utoipa::path(post, path = "/apps/{code}/secret", operation_id = "rotate_app_secret",
               params(("code" = String, Path)), params(AppQuery), tag = "access",
               responses((status = 200, body = CreatedApp)))]
pub(super) async fn rotate(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(code): Path<String>,
    Params(query): Params<AppQuery>,
) -> Result<Json<CreatedApp>> {
    let unknown = || NativeError::new(Kind::NotFound, messages::app_is_unknown(&code));
    let parsed: AppCode = code.parse().map_err(|_| unknown())?;
    let work = async move |control: Control| control.rotate_app(&parsed, query.signatures).await;
    let target = admin::describe_rotation(&code, query.signatures);
    let (app, secret) = caller.administer(&state, "rotate_app_secret", [target], work).await?;
    Ok(Json(CreatedApp { code, secret, trusted: app.trusted }))
}

/// Deletes an app and its bindings.
#[utoipa::path(delete, path = "/apps/{code}", operation_id = "delete_app", params(("code" = String, Path)),
               tag = "access", responses((status = 200, body = Removed)))]
pub(super) async fn delete(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(code): Path<String>,
) -> Result<Json<Removed>> {
    if code == caller.who.app {
        return Err(NativeError::new(Kind::Conflict, messages::app_removes_itself()));
    }
    let before = described::app(&state.control, &code).await?;
    let what = format!("app {code}");
    caller.remove(&state, "delete_app", what, before, async move |control| control.delete_app(&code).await).await
}

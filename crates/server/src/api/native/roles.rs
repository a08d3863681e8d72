//! Roles, and who has them where.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_api::{BindingList, BindingQuery, BindingView, ID_MAX, NewBinding, NewRole, Removed, RoleList, RoleView};
use proctor_model::{Bounds, Class, Classes, FieldError, Message, Role, RoleName, Scope, Subject, messages};
use proctor_runtime::clock;
use proctor_store::{Binding, Refusal};
use uuid::Uuid;

use super::body::{Body, Params};
use super::caller::Authenticated;
use super::described;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::control::Control;

/// Allowed users, and allowed directories, of one binding: all are looked through for every spec.
const BOUNDS_MAX: usize = 64;

/// All roles, built-in ones first.
#[utoipa::path(get, path = "/roles", operation_id = "roles", tag = "access", responses((status = 200, body = RoleList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<RoleList>> {
    let roles = state.control.roles().await?.iter().map(role_view).collect();
    Ok(Json(RoleList { roles }))
}

/// Creates a role, or changes what it allows.
#[utoipa::path(put, path = "/roles/{name}", operation_id = "put_role", params(("name" = String, Path)),
               request_body = NewRole, tag = "access",
               responses((status = 200, body = RoleView)))]
pub(super) async fn put(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Body(body): Body<NewRole>,
) -> Result<Json<RoleView>> {
    let role = Role { name: role_name("name", &name)?, classes: classes(&body.classes)? };
    let view = role_view(&role);
    let before = described::role_classes(&state.control, &role.name).await?;
    let target = described::changed(&format!("role {name}"), &described::classes(role.classes), before.as_deref());
    caller.administer(&state, "put_role", [target], async move |control| control.put_role(role).await).await?;
    Ok(Json(view))
}

/// Deletes a role and all its bindings.
#[utoipa::path(delete, path = "/roles/{name}", operation_id = "delete_role", params(("name" = String, Path)),
               tag = "access", responses((status = 200, body = Removed)))]
pub(super) async fn delete(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<Removed>> {
    let role = role_name("name", &name)?;
    if Role::built_in().iter().any(|built_in| built_in.name == role) {
        return Err(Refusal::BuiltInRole(role).into());
    }
    let before = described::role(&state.control, &role).await?;
    let what = format!("role {name}");
    caller.remove(&state, "delete_role", what, before, async move |control| control.delete_role(&role).await).await
}

/// Who has which role where.
#[utoipa::path(get, path = "/bindings", operation_id = "bindings", params(BindingQuery), tag = "access",
               responses((status = 200, body = BindingList)))]
pub(super) async fn bindings(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<BindingQuery>,
) -> Result<Json<BindingList>> {
    let subject: Option<Subject> = query.subject.as_deref().map(str::parse).transpose()?;
    let mut bindings = state.control.bindings().await?;
    bindings.retain(|binding| subject.as_ref().is_none_or(|subject| binding.subject == *subject));
    Ok(Json(BindingList { bindings: bindings.iter().map(binding_view).collect() }))
}

/// Grants a role to an app or a user. An existing binding is returned as it is.
#[utoipa::path(post, path = "/bindings", operation_id = "create_binding", request_body = NewBinding, tag = "access",
               responses((status = 201, body = BindingView)))]
pub(super) async fn bind(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewBinding>,
) -> Result<(StatusCode, Json<BindingView>)> {
    let binding = Binding {
        id: Uuid::now_v7(),
        role: role_name("role", &body.role)?,
        subject: body.subject.parse()?,
        scope: scope(&body.scope)?,
        bounds: bounds(&body.allow_users, &body.allow_roots)?,
        created_at: clock::unix_millis(),
    };
    let target = described::binding(&binding);
    let wanted = binding.clone();
    let work = async move |control: Control| control.put_binding(wanted).await;
    let made = |id: &Uuid| format!("done: binding {id}");
    let id = caller.administer_telling(&state, "create_binding", [target], work, made).await?;
    let kept = state.control.bindings().await?.into_iter().find(|binding| binding.id == id);
    Ok((StatusCode::CREATED, Json(binding_view(&kept.unwrap_or(binding)))))
}

/// Revokes a binding.
#[utoipa::path(delete, path = "/bindings/{id}", operation_id = "delete_binding", params(("id" = String, Path)),
               tag = "access", responses((status = 200, body = Removed)))]
pub(super) async fn unbind(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<Removed>> {
    let unknown = |_| NativeError::new(Kind::NotFound, messages::no_such_thing(format_args!("binding {id}")));
    let uuid = Uuid::parse_str(&id).map_err(unknown)?;
    let before = described::binding_of(&state.control, uuid).await?;
    let what = format!("binding {uuid}");
    caller.remove(&state, "delete_binding", what, before, async move |control| control.delete_binding(uuid).await).await
}

/// Its path in the request, not the name of its type.
pub(super) fn role_name(field: &str, text: &str) -> std::result::Result<RoleName, FieldError> {
    text.parse().map_err(|error: FieldError| FieldError::new(field, error.problem))
}

/// One whose numbers the store can hold.
pub(super) fn scope(text: &str) -> std::result::Result<Scope, FieldError> {
    let bad = |problem: Message| FieldError::new("scope", problem);
    let scope: Scope = text.parse().map_err(|error: FieldError| bad(error.problem))?;
    if let Scope::Business(id) | Scope::BusinessSet(id) = scope
        && id > ID_MAX
    {
        return Err(bad(messages::more_than(id, ID_MAX)));
    }
    Ok(scope)
}

pub(super) fn bounds(users: &[String], roots: &[String]) -> std::result::Result<Bounds, FieldError> {
    Ok(Bounds { users: each("allow_users", users)?, roots: each("allow_roots", roots)? })
}

fn each<T>(field: &str, texts: &[String]) -> std::result::Result<BTreeSet<T>, FieldError>
where
    T: std::str::FromStr<Err = FieldError> + Ord,
{
    if texts.len() > BOUNDS_MAX {
        return Err(FieldError::new(field, messages::more_entries_than(BOUNDS_MAX)));
    }
    let one = |(index, text): (usize, &String)| {
        text.parse().map_err(|error: FieldError| FieldError::new(format!("{field}[{index}]"), error.problem))
    };
    texts.iter().enumerate().map(one).collect()
}

fn classes(names: &[String]) -> std::result::Result<Classes, FieldError> {
    if names.is_empty() {
        return Err(FieldError::new("classes", messages::must_not_be_empty()));
    }
    let one = |(index, name): (usize, &String)| {
        name.parse::<Class>().map_err(|error| FieldError::new(format!("classes[{index}]"), error.problem))
    };
    names.iter().enumerate().map(one).collect()
}

fn role_view(role: &Role) -> RoleView {
    RoleView {
        name: role.name.to_string(),
        classes: role.classes.iter().map(|class| class.to_string()).collect(),
        built_in: Role::built_in().iter().any(|built_in| built_in.name == role.name),
    }
}

fn binding_view(binding: &Binding) -> BindingView {
    BindingView {
        id: binding.id.to_string(),
        role: binding.role.to_string(),
        subject: binding.subject.to_string(),
        scope: binding.scope.to_string(),
        allow_users: binding.bounds.users.iter().map(ToString::to_string).collect(),
        allow_roots: binding.bounds.roots.iter().map(ToString::to_string).collect(),
        created_at: binding.created_at / 1000,
    }
}

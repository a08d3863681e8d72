//! Users, and the tokens with which they call. Secrets are shown once.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use proctor_api::{
    CreatedUserToken, NewUser, NewUserToken, Removed, UserChange, UserList, UserTokenList, UserTokenView, UserView,
};
use proctor_model::{FieldError, check_person_name, messages};
use proctor_runtime::clock;
use proctor_store::{Refusal, StoreError, User, UserToken};

use super::body::Body;
use super::caller::Authenticated;
use super::described;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::control::Control;
use crate::user_token::TokenText;

pub(super) const NAME_CHARS_MAX: usize = 64;
const NOTE_CHARS_MAX: usize = 256;
const TTL_SECS_MAX: u64 = 366 * 24 * 3600;

/// All users.
#[utoipa::path(get, path = "/users", operation_id = "users", tag = "access", responses((status = 200, body = UserList)))]
pub(super) async fn list(_: Authenticated, State(state): State<ApiState>) -> Result<Json<UserList>> {
    Ok(Json(UserList { users: state.control.users().await?.into_iter().map(view).collect() }))
}

/// Creates a user, who may do nothing until bound to a role.
#[utoipa::path(post, path = "/users", operation_id = "create_user", request_body = NewUser, tag = "access",
               responses((status = 201, body = UserView)))]
pub(super) async fn create(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<NewUser>,
) -> Result<(StatusCode, Json<UserView>)> {
    let user = User { name: user_name(body.name)?, created_at: clock::unix_millis(), disabled: false };
    let (made, target) = (user.clone(), format!("user {}: enabled, no bindings", user.name));
    caller.administer(&state, "create_user", [target], async move |control| control.create_user(made).await).await?;
    Ok((StatusCode::CREATED, Json(view(user))))
}

/// Disables a user, whose tokens are then refused and whose sessions and sign-in links end, or enables it again.
#[utoipa::path(put, path = "/users/{name}", operation_id = "update_user", params(("name" = String, Path)),
               request_body = UserChange, tag = "access", responses((status = 200, body = UserView)))]
pub(super) async fn update(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Body(body): Body<UserChange>,
) -> Result<Json<UserView>> {
    let action = if body.disabled { "disable_user" } else { "enable_user" };
    let after = if body.disabled { "disabled" } else { "enabled" };
    let before = described::user(&state.control, &name).await?;
    let target = described::changed(&format!("user {name}"), after, before.as_deref());
    let work = async move |control: Control| {
        let changed = control.disable_user(&name, body.disabled).await?;
        Ok::<_, StoreError>(changed.ok_or(Refusal::UnknownUser(name)))
    };
    let user = caller.administer(&state, action, [target], work).await?;
    Ok(Json(view(user)))
}

/// Deletes a user with its tokens and bindings.
#[utoipa::path(delete, path = "/users/{name}", operation_id = "delete_user", params(("name" = String, Path)),
               tag = "access", responses((status = 200, body = Removed)))]
pub(super) async fn delete(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<Removed>> {
    let before = described::user(&state.control, &name).await?;
    let what = format!("user {name}");
    caller.remove(&state, "delete_user", what, before, async move |control| control.delete_user(&name).await).await
}

/// The tokens of a user, without their secrets.
#[utoipa::path(get, path = "/users/{name}/tokens", operation_id = "user_tokens", params(("name" = String, Path)),
               tag = "access", responses((status = 200, body = UserTokenList)))]
pub(super) async fn tokens(
    _: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<UserTokenList>> {
    known(&state, &name).await?;
    let tokens = state.control.user_tokens(Some(&name)).await?;
    Ok(Json(UserTokenList { tokens: tokens.into_iter().map(token_view).collect() }))
}

/// Creates a token for a user. It is shown only here.
#[utoipa::path(post, path = "/users/{name}/tokens", operation_id = "create_user_token",
               params(("name" = String, Path)), request_body = NewUserToken, tag = "access",
               responses((status = 201, body = CreatedUserToken)))]
pub(super) async fn create_token(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Body(body): Body<NewUserToken>,
) -> Result<(StatusCode, Json<CreatedUserToken>)> {
    let (note, ttl) = (note(body.note)?, ttl(body.ttl_secs)?);
    let end = ttl.map_or_else(|| "without an end".to_owned(), |ttl| format!("for {} s", ttl.as_secs()));
    let target = format!("token of user {name}: {end}, note '{note}'");
    let work = async move |control: Control| control.create_user_token(&name, &note, ttl).await;
    let made = |(_, token): &(TokenText, UserToken)| format!("done: token {}", token.id);
    let (text, token) = caller.administer_telling(&state, "create_user_token", [target], work, made).await?;
    let expires_at = token.expires_at.map(|at| at / 1000);
    Ok((StatusCode::CREATED, Json(CreatedUserToken { id: token.id, token: text.to_string(), expires_at })))
}

/// Revokes a user's token.
#[utoipa::path(delete, path = "/users/{name}/tokens/{id}", operation_id = "delete_user_token",
               params(("name" = String, Path), ("id" = String, Path)), tag = "access",
               responses((status = 200, body = Removed)))]
pub(super) async fn delete_token(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Json<Removed>> {
    let what = format!("token {id} of user {name}");
    let before = described::user_token(&state.control, &id).await?;
    let work = async move |control: Control| match control.user_token(&id).await? {
        Some(token) if token.user == name => control.delete_user_token(&id).await,
        Some(_) | None => Ok(false),
    };
    caller.remove(&state, "delete_user_token", what, before, work).await
}

async fn known(state: &ApiState, name: &str) -> Result<User> {
    let user = state.control.user(name).await?;
    user.ok_or_else(|| NativeError::new(Kind::NotFound, messages::user_is_unknown(name)))
}

/// Without ':', at which the text of a subject is split.
fn user_name(name: String) -> std::result::Result<String, FieldError> {
    check_person_name("name", &name)?;
    let length = name.chars().count();
    if length > NAME_CHARS_MAX || name.contains([':', '/']) {
        let problem = messages::must_have_chars_for_a_name(NAME_CHARS_MAX);
        return Err(FieldError::new("name", problem));
    }
    Ok(name)
}

fn note(note: String) -> std::result::Result<String, FieldError> {
    if note.chars().count() > NOTE_CHARS_MAX || note.chars().any(char::is_control) {
        let problem = messages::must_have_visible_chars(NOTE_CHARS_MAX);
        return Err(FieldError::new("note", problem));
    }
    Ok(note)
}

fn ttl(secs: Option<u64>) -> std::result::Result<Option<Duration>, FieldError> {
    match secs {
        Some(secs) if secs == 0 || secs > TTL_SECS_MAX => {
            Err(FieldError::new("ttl_secs", messages::not_between(secs, 1, TTL_SECS_MAX)))
        }
        secs => Ok(secs.map(Duration::from_secs)),
    }
}

fn view(user: User) -> UserView {
    UserView { name: user.name, created_at: user.created_at / 1000, disabled: user.disabled }
}

fn token_view(token: UserToken) -> UserTokenView {
    UserTokenView {
        id: token.id,
        user: token.user,
        note: token.note,
        created_at: token.created_at / 1000,
        expires_at: token.expires_at.map(|at| at / 1000),
    }
}

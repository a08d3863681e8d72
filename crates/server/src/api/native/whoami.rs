//! Who is calling, as the server sees it.

use axum::Json;
use proctor_api::{Allowed, AllowedWithin, Who};
use proctor_model::{Class, Permissions};

use super::caller::Authenticated;
use crate::control::Caller;

/// Who the caller is, and what they may do where. Open to every authenticated caller.
#[utoipa::path(get, path = "/whoami", operation_id = "whoami", tag = "access",
               responses((status = 200, body = Who)))]
pub(super) async fn whoami(caller: Authenticated) -> Json<Who> {
    Json(who(&caller.who))
}

/// What a caller may do where.
pub(super) fn who(who: &Caller) -> Who {
    let allowed = |class: Class| {
        let scopes = texts(&who.permissions.scopes(class).scopes());
        let bounds = if class == Class::Register { bounds(&who.permissions) } else { Vec::new() };
        (!scopes.is_empty()).then(|| Allowed { class: class.to_string(), scopes, bounds })
    };
    let allowed = Class::ALL.into_iter().filter_map(allowed).collect();
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Who { app: filled(&who.app), user: filled(&who.user), allowed }
}

fn bounds(permissions: &Permissions) -> Vec<AllowedWithin> {
    let within = permissions.bounded().map(|(scopes, bounds)| AllowedWithin {
        scopes: texts(&scopes),
        allow_users: texts(&bounds.users),
        allow_roots: texts(&bounds.roots),
    });
    within.collect()
}

fn texts<'a, T: ToString + 'a>(values: impl IntoIterator<Item = &'a T>) -> Vec<String> {
    values.into_iter().map(ToString::to_string).collect()
}

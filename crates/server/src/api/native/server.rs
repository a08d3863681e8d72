//! What the server tells of itself.

use axum::Json;
use axum::extract::State;
use proctor_api::ServerView;
use proctor_model::Class;
use proctor_runtime::clock;

use super::caller::Authenticated;
use super::{ApiState, Result};

/// The server's version, its clock, and how long agents will believe it. For whoever may read anything.
#[utoipa::path(get, path = "/server", operation_id = "server", tag = "hosts",
               responses((status = 200, body = ServerView)))]
pub(super) async fn show(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<ServerView>> {
    caller.who.must_somewhere(Class::Read)?;
    Ok(Json(ServerView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_ms: clock::unix_millis(),
        link_certificate_expires_at: state.control.link_expires_at(),
    }))
}

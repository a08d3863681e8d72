//! Who calls: the header `X-Bkapi-Authorization`, as in every other dialect.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::api::auth::{Credentials, authenticate};
use crate::api::request::origin_of;
use crate::control::{Caller, Control};

/// A handler that takes this is reached only by callers who have proved who they are. It comes
/// first among the arguments, so that nothing of a stranger's body is read.
#[derive(Debug)]
pub(super) struct Authenticated {
    pub(super) who: Caller,
}

impl FromRequestParts<ApiState> for Authenticated {
    type Rejection = NativeError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self> {
        let credentials = Credentials::from_headers(&parts.headers)?.unwrap_or_default();
        let origin = origin_of(&parts.headers, &parts.extensions);
        Ok(Self { who: authenticate(state, &credentials, origin).await? })
    }
}

impl Authenticated {
    /// `what` completes "only trusted apps may …".
    pub(super) async fn must_be_trusted(&self, control: &Control, what: &str) -> Result<()> {
        match control.app(&self.who.app).await? {
            Some(app) if app.trusted => Ok(()),
            Some(_) | None => Err(NativeError::new(Kind::PermissionDenied, format!("only trusted apps may {what}"))),
        }
    }
}

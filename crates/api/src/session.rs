//! Console sessions: signing in with a browser.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Who;

/// How to sign in: with `token`, with `user` and `password`, or with the code of a one-time `link`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// A user token. The session ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Works once, for a few minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").field("user", &self.user).finish_non_exhaustive()
    }
}

/// An open session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    #[serde(flatten)]
    pub who: Who,
    /// To send as `x-proctor-csrf` with every call of the session that is not a GET.
    pub csrf: String,
    pub expires_at: i64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("who", &self.who).finish_non_exhaustive()
    }
}

/// Where a browser signs in, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInLink {
    /// On this server: `/sign-in#link=…`.
    pub path: String,
    pub expires_at: i64,
}

impl std::fmt::Debug for SignInLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInLink").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// A password set by an administrator.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// Absent: the user signs in with a token only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 12, max_length = 1024)]
    pub password: Option<String>,
}

impl std::fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewPassword").finish_non_exhaustive()
    }
}

/// A password changed by its user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnPassword {
    pub current: String,
    #[schema(min_length = 12, max_length = 1024)]
    pub password: String,
}

impl std::fmt::Debug for OwnPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnPassword").finish_non_exhaustive()
    }
}

//! Records of businesses, bindings and users.

use std::collections::BTreeSet;

use proctor_model::{Bounds, HostKey, Message, RoleName, Scope, Subject, messages};
use uuid::Uuid;

use crate::Millis;

/// The owner of hosts. Ids are chosen by the caller, to match the fleet's inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Business {
    pub id: u64,
    pub name: String,
}

/// Businesses that are managed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusinessSet {
    pub id: u64,
    pub name: String,
    pub members: BTreeSet<u64>,
}

/// Gives a role to an app or a user, in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub id: Uuid,
    pub role: RoleName,
    pub subject: Subject,
    pub scope: Scope,
    /// Restricts which specs may be registered under it.
    pub bounds: Bounds,
    pub created_at: Millis,
}

/// A person, known by name; a disabled one may do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub created_at: Millis,
    pub disabled: bool,
}

/// What a sign-in by password or link was based on. It changes for good when the password is set or removed, or the
/// user is disabled or removed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCredential {
    /// How often a user of this name has been removed.
    pub life: u32,
    /// Number of changes since the user was created.
    pub version: u32,
    pub password_hash: Option<String>,
}

impl std::fmt::Debug for UserCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCredential")
            .field("life", &self.life)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Lets whoever holds its secret call as the user.
#[derive(Clone, PartialEq, Eq)]
pub struct UserToken {
    pub id: String,
    pub user: String,
    pub secret_hash: String,
    /// What it is for, in the user's words.
    pub note: String,
    pub created_at: Millis,
    /// None: it never expires.
    pub expires_at: Option<Millis>,
    pub kind: TokenKind,
}

/// How a user token is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenKind {
    /// Sent by programs in a header.
    #[default]
    Call,
    /// Kept by a browser in a cookie. A session that was opened with another token ends with that token.
    Session { parent: Option<String> },
}

/// Open console sessions per user; opening one more closes the oldest.
pub const SESSIONS_PER_USER_MAX: u32 = 20;

impl std::fmt::Debug for UserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserToken").field("id", &self.id).field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why a record that refers to another one was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    UnknownBusiness(u64),
    UnknownBusinessSet(u64),
    UnknownRole(RoleName),
    BuiltInRole(RoleName),
    UnknownUser(String),
    UnknownToken(String),
    AppExists(String),
    UnknownApp(String),
    CredentialChanged(String),
    UserDisabled(String),
    UserExists(String),
    OtherKey { host: HostKey, found: String, given: String },
}

impl std::error::Error for Refusal {}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.message().fmt(f)
    }
}

impl Refusal {
    /// The same for the caller, in all languages.
    pub fn message(&self) -> Message {
        match self {
            Self::UnknownBusiness(id) => messages::business_is_unknown(id),
            Self::UnknownBusinessSet(id) => messages::business_set_is_unknown(id),
            Self::UnknownRole(role) => messages::role_is_unknown(role),
            Self::BuiltInRole(role) => messages::role_is_built_in(role),
            Self::UnknownUser(user) => messages::user_is_unknown(user),
            Self::UnknownToken(id) => messages::user_token_is_unknown(id),
            Self::AppExists(app) => messages::app_exists(app),
            Self::UnknownApp(app) => messages::app_is_unknown(app),
            Self::CredentialChanged(user) => messages::credential_changed(user),
            Self::UserDisabled(user) => messages::user_is_disabled(user),
            Self::UserExists(user) => messages::user_exists(user),
            Self::OtherKey { host, found, given } => messages::host_has_another_key(host, found, given),
        }
    }
}

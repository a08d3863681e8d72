//! Businesses, bindings and users as they cross the store's border.

use std::collections::BTreeSet;

use proctor_model::{Bounds, HostKey, Message, RoleName, Scope, Subject, messages};
use uuid::Uuid;

use crate::Millis;

/// Whom hosts belong to. The numbers are given by the caller, as the fleet's inventory has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Business {
    pub id: u64,
    pub name: String,
}

/// Businesses that are administered together.
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
    /// Of the specs that may be registered by it.
    pub bounds: Bounds,
    pub created_at: Millis,
}

/// A person, known by name; one that is disabled may do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub created_at: Millis,
    pub disabled: bool,
}

/// What a sign-in by password or link rests on. Never the same again after the password was set or removed, or
/// the user was disabled or removed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCredential {
    /// How often users of this name were removed.
    pub life: u32,
    /// Counts the changes in this life.
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

/// Lets who knows its secret call as the user.
#[derive(Clone, PartialEq, Eq)]
pub struct UserToken {
    pub id: String,
    pub user: String,
    pub secret_hash: String,
    /// What it is for, in the user's words.
    pub note: String,
    pub created_at: Millis,
    /// None: never.
    pub expires_at: Option<Millis>,
    pub kind: TokenKind,
}

/// What a user token is used as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenKind {
    /// Sent by programs in a header.
    #[default]
    Call,
    /// Kept by a browser in a cookie. One that was opened with another token ends with that token.
    Session { parent: Option<String> },
}

/// Open console sessions of one user; the oldest is closed for one more.
pub const SESSIONS_PER_USER_MAX: u32 = 20;

impl std::fmt::Debug for UserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserToken").field("id", &self.id).field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why something that names something else was not stored.
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
    /// The same for the caller, in every language.
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

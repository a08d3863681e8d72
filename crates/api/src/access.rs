//! Who may do what: apps, users, their secrets, roles and bindings; and join tokens for agents.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Who calls, and what they may do where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Who {
    /// Absent for a user who called with a token of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Classes that are allowed nowhere are left out.
    pub allowed: Vec<Allowed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allowed {
    /// `read`, `operate`, `register`, `limits` or `admin`.
    pub class: String,
    /// `everything`, or each of `business:3`, `namespace:web` and `cloud:0`.
    pub scopes: Vec<String>,
    /// Only for `register`: those of the scopes where not every spec may be registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<AllowedWithin>,
}

/// What may be registered in some scopes. An empty list does not narrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowedWithin {
    pub scopes: Vec<String>,
    /// Values of `identity.user`.
    pub allow_users: Vec<String>,
    /// Directories that hold every path of the spec.
    pub allow_roots: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppView {
    pub code: String,
    /// May name any user without proof.
    pub trusted: bool,
    pub created_at: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppList {
    pub apps: Vec<AppView>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApp {
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.-]+$")]
    pub code: String,
    /// May name any user without proof, and may do everything.
    #[serde(default)]
    pub trusted: bool,
    /// Bindings that it gets at once.
    #[serde(default, deserialize_with = "crate::object::each", skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<NewGrant>,
    /// Stores the secret (sealed), so that requests can be signed with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signatures: bool,
}

/// A role on a scope, with bounds as those of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGrant {
    pub role: String,
    /// `everything`, `business:3`, `set:2`, `namespace:web` or `cloud:0`.
    pub scope: String,
    /// The only values of `identity.user` in specs registered under it; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub allow_users: Vec<String>,
    /// The only directories below which paths of such specs may be; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub allow_roots: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AppQuery {
    /// Stores the new secret (sealed), so that requests can be signed with it.
    pub signatures: Option<bool>,
}

/// Contains a secret that is only shown here: not for logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedApp {
    pub code: String,
    pub secret: String,
    pub trusted: bool,
}

impl std::fmt::Debug for CreatedApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedApp").field("code", &self.code).field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    pub name: String,
    pub created_at: i64,
    /// Its tokens are refused.
    pub disabled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    pub users: Vec<UserView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    pub disabled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserTokenView {
    pub id: String,
    pub user: String,
    pub note: String,
    pub created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserTokenList {
    pub tokens: Vec<UserTokenView>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUserToken {
    /// What it is for.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub note: String,
    /// Absent: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31622400)]
    pub ttl_secs: Option<u64>,
}

/// Contains a secret that is only shown here: not for logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedUserToken {
    pub id: String,
    /// For the header `Authorization: Bearer …`.
    pub token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

impl std::fmt::Debug for CreatedUserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedUserToken").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleView {
    pub name: String,
    /// Of `read`, `operate`, `register`, `limits` and `admin`; none implies another.
    pub classes: Vec<String>,
    /// Cannot be changed.
    pub built_in: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleList {
    pub roles: Vec<RoleView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRole {
    /// Of `read`, `operate`, `register`, `limits` and `admin`; none implies another.
    #[schema(min_items = 1)]
    pub classes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BindingView {
    pub id: String,
    pub role: String,
    /// `app:CODE` or `user:NAME`.
    pub subject: String,
    /// `everything`, `business:3`, `set:2`, `namespace:web` or `cloud:0`.
    pub scope: String,
    /// The only values of `identity.user` in specs registered under it; empty: any.
    #[serde(default)]
    pub allow_users: Vec<String>,
    /// The only directories below which paths of such specs may be; empty: any.
    #[serde(default)]
    pub allow_roots: Vec<String>,
    pub created_at: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BindingList {
    pub bindings: Vec<BindingView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    pub role: String,
    /// `app:CODE` or `user:NAME`.
    pub subject: String,
    /// `everything`, `business:3`, `set:2`, `namespace:web` or `cloud:0`.
    pub scope: String,
    /// The only values of `identity.user` in specs registered under it; empty: any.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub allow_users: Vec<String>,
    /// The only directories below which paths of such specs may be: setup_path, pid_path, config_path, log_path and
    /// the paths of the configmap; empty: any. Commands are not restricted by it.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub allow_roots: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BindingQuery {
    /// `app:CODE` or `user:NAME`.
    pub subject: Option<String>,
}

/// Which grants: of whom, of what, and where. A field that is absent does not narrow. A process is in the scope of
/// its namespace, and of the business and the cloud area of its host: give `namespace` and `host` together to query
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantQuery {
    /// `app:CODE` or `user:NAME`.
    pub subject: Option<String>,
    /// `read`, `operate`, `register`, `limits` or `admin`.
    pub class: Option<String>,
    pub namespace: Option<String>,
    /// An IP address, `CLOUD:IP` or an agent id: its business and cloud area count as `business` and `cloud`.
    pub host: Option<String>,
    /// Not with `host`.
    #[serde(default, deserialize_with = "crate::id::optional")]
    pub business: Option<u64>,
    /// Not with `host`.
    pub cloud: Option<u32>,
    /// True: only grants on everything. Not together with a target.
    pub everywhere: Option<bool>,
}

/// A class that a binding grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantView {
    pub subject: String,
    pub class: String,
    pub role: String,
    /// As in the binding, such as `set:2`.
    pub scope: String,
    /// The id of the binding.
    pub binding: String,
    /// The user is disabled: the grant exists, but nobody can use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Only for `register`: values of `identity.user` that specs may have; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_users: Vec<String>,
    /// Only for `register`: directories that contain every path of the spec; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_roots: Vec<String>,
}

/// By subject, then in the order of classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantList {
    pub grants: Vec<GrantView>,
}

/// A join token to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewToken {
    /// How many agents may enrol with it.
    #[schema(minimum = 1, maximum = 100000)]
    pub uses: u32,
    #[schema(minimum = 1, maximum = 31622400)]
    pub ttl_secs: u64,
    /// The only cloud area that it is valid for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_id: Option<u32>,
    /// The business in which new hosts that enrol with it are placed.
    #[serde(deserialize_with = "crate::id::optional", skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    /// The only host that it is valid for, an IP address or `CLOUD:IP`; it can also take over a known host, with
    /// another key too. Only with one use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// For relays of `cloud_id` instead of agents.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub relay: bool,
}

impl Default for NewToken {
    fn default() -> Self {
        Self { uses: 1, ttl_secs: 3600, cloud_id: None, business: None, host: None, relay: false }
    }
}

/// A join token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub id: String,
    pub uses: u32,
    /// Agents that enrolled with it.
    pub used: u32,
    /// Enrolments that were refused although they presented its secret.
    pub refused: u32,
    pub expires_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// For relays instead of agents.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relay: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub tokens: Vec<TokenView>,
}

/// Contains a secret that is only shown here: not for logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// As the list of tokens and the audit log name it.
    #[serde(default)]
    pub id: String,
    pub token: String,
    pub expires_at: i64,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let app = CreatedApp { code: "a".into(), secret: "hush".into(), trusted: true };
        let user = CreatedUserToken { id: "1".into(), token: "hush".into(), expires_at: None };
        let join = CreatedToken { id: "1".into(), token: "hush".into(), expires_at: 1 };

        assert!(!format!("{app:?}{user:?}{join:?}").contains("hush"));
    }
}

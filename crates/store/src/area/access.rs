//! Who may do what: apps and secrets, users with tokens and sessions, businesses with their hosts, roles and
//! bindings.
//!
//! Promised: whatever belongs to a removed record is removed in the same transaction. Absent: hashing and sealing;
//! secrets are stored as they arrive.

use async_trait::async_trait;
use proctor_model::{HostKey, Permissions, Role, RoleName, Subject};
use uuid::Uuid;

use crate::{App, Binding, Business, BusinessSet, Millis, Refusal, Result, User, UserCredential, UserToken};

/// Apps, users and their credentials, businesses, roles and bindings.
#[async_trait]
pub trait AccessStore: Send + Sync + std::fmt::Debug {
    // Apps and secrets.

    /// Inserts the app, or replaces the one of the same code.
    async fn put_app(&self, app: App) -> Result<()>;
    /// Inserts the app with its bindings, all or nothing. Refused if the code is taken, or if [`Self::put_binding`]
    /// would refuse one of the bindings.
    async fn create_app(&self, app: App, bindings: &[Binding]) -> Result<std::result::Result<(), Refusal>>;
    async fn app(&self, code: &str) -> Result<Option<App>>;
    /// Replaces the hash of the app's secret if it equals `old`; false if it does not, or if there is no such app.
    async fn renew_app_hash(&self, code: &str, old: &str, new: &str) -> Result<bool>;
    /// Replaces only the secret of an app and returns the app; None if there is no such app.
    async fn set_app_secret(
        &self,
        code: &str,
        secret_hash: String,
        sealed_secret: Option<Vec<u8>>,
    ) -> Result<Option<App>>;
    /// Sorted by code.
    async fn apps(&self) -> Result<Vec<App>>;
    /// Returns whether it existed. Its bindings are removed with it.
    async fn delete_app(&self, code: &str) -> Result<bool>;
    /// The value stored under `name`; stores and returns `value` if there was none. The first writer wins.
    async fn secret_or_insert(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>>;
    async fn secret(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Replaces a secret if it equals `old`; false if it does not.
    async fn replace_secret(&self, name: &str, old: Vec<u8>, new: Vec<u8>) -> Result<bool>;
    /// Rises with every restore, which distinguishes a control plane from an older copy of itself.
    async fn control_epoch(&self) -> Result<u64>;

    // Businesses.

    /// Inserts the business, or renames the one of the same id.
    async fn put_business(&self, business: Business) -> Result<()>;
    /// Sorted by id.
    async fn businesses(&self) -> Result<Vec<Business>>;
    /// Returns whether it existed. Its hosts then belong to no business, sets lose it, join tokens no longer place
    /// hosts in it, and its bindings are removed.
    async fn delete_business(&self, id: u64) -> Result<bool>;
    /// Inserts the set, or replaces the one of the same id. All members must exist.
    async fn put_business_set(&self, set: BusinessSet) -> Result<std::result::Result<(), Refusal>>;
    /// Sorted by id.
    async fn business_sets(&self) -> Result<Vec<BusinessSet>>;
    /// Returns whether it existed. Its bindings are removed with it.
    async fn delete_business_set(&self, id: u64) -> Result<bool>;
    /// Assigns each host, identified by `cloud` and `ip`, to a business (None: to none); the host need not be
    /// enrolled. If a host is listed twice, the last entry wins. An unknown business refuses them all.
    async fn place_hosts(&self, placements: &[(HostKey, Option<u64>)]) -> Result<std::result::Result<(), Refusal>>;
    /// The business of each address, in order, enrolled or not.
    async fn placements(&self, hosts: &[HostKey]) -> Result<Vec<Option<u64>>>;
    /// [`Self::put_business`] for each business and then [`Self::place_hosts`], all or nothing.
    async fn import_hosts(
        &self,
        businesses: &[Business],
        placements: &[(HostKey, Option<u64>)],
    ) -> Result<std::result::Result<(), Refusal>>;

    // Access.

    /// Inserts the role, or replaces the one of the same name.
    async fn put_role(&self, role: Role) -> Result<std::result::Result<(), Refusal>>;
    /// The built-in ones first, then the others by name.
    async fn roles(&self) -> Result<Vec<Role>>;
    /// Returns whether it existed; a built-in role is never removed. Its bindings are removed with it.
    async fn delete_role(&self, name: &RoleName) -> Result<bool>;
    /// Stores the binding and returns its id. If the same subject already has the same role in the same scope with
    /// the same bounds, that binding stays and its id is returned. The role, and a business or set in the scope,
    /// must exist; the subject need not.
    async fn put_binding(&self, binding: Binding) -> Result<std::result::Result<Uuid, Refusal>>;
    /// The oldest first.
    async fn bindings(&self) -> Result<Vec<Binding>>;
    /// Returns whether it existed.
    async fn delete_binding(&self, id: Uuid) -> Result<bool>;
    /// The union of what the bindings of these subjects allow. Refused if one of them is a disabled user: nobody
    /// acts in the name of one, whatever else vouches for the call.
    async fn permissions(&self, subjects: &[Subject]) -> Result<std::result::Result<Permissions, Refusal>>;
    /// Claims the nonce of a signed request until then; false if it was claimed already. Expired nonces are
    /// forgotten.
    async fn take_nonce(&self, fingerprint: [u8; 32], until: Millis, now: Millis) -> Result<bool>;

    // Users.

    /// Inserts the user; refused if the name is taken. What was done under this name before does not belong to the
    /// user.
    async fn create_user(&self, user: User) -> Result<std::result::Result<(), Refusal>>;
    /// Enables or disables the user and returns it; None if there is no such user. Tokens stay; disabling closes
    /// the user's sessions.
    async fn disable_user(&self, name: &str, disabled: bool) -> Result<Option<User>>;
    async fn user(&self, name: &str) -> Result<Option<User>>;
    /// Sorted by name.
    async fn users(&self) -> Result<Vec<User>>;
    /// Names that nobody may act under: those of users that are disabled, or were when they were removed. Sorted.
    async fn disabled_names(&self) -> Result<Vec<String>>;
    /// Returns whether it existed. The user's tokens and bindings are removed with it.
    async fn delete_user(&self, name: &str) -> Result<bool>;
    /// Inserts the token, or replaces the one of the same id. The user must exist, and so must the parent of a
    /// session, or [`Refusal::UnknownToken`]. Only the newest
    /// [`SESSIONS_PER_USER_MAX`](crate::SESSIONS_PER_USER_MAX) sessions are kept.
    async fn put_user_token(&self, token: UserToken) -> Result<std::result::Result<(), Refusal>>;
    /// As [`Self::put_user_token`], for a session opened with a password or a link: only while the credential is
    /// still current, or [`Refusal::CredentialChanged`]. The user must not be disabled.
    async fn put_session(
        &self,
        token: UserToken,
        credential: Option<UserCredential>,
    ) -> Result<std::result::Result<(), Refusal>>;
    /// Of one user or of all, oldest first.
    async fn user_tokens(&self, user: Option<&str>) -> Result<Vec<UserToken>>;
    async fn user_token(&self, id: &str) -> Result<Option<UserToken>>;
    /// Returns whether it existed. Sessions that were opened with it are removed too.
    async fn delete_user_token(&self, id: &str) -> Result<bool>;
    /// Sets or removes the hash of the user's password; either closes the user's sessions. If a credential is
    /// given, only while that is still current, or [`Refusal::CredentialChanged`].
    async fn set_user_password(
        &self,
        name: &str,
        hash: Option<String>,
        expected: Option<UserCredential>,
        now: Millis,
    ) -> Result<std::result::Result<(), Refusal>>;
    /// None if there is no such user.
    async fn user_credential(&self, name: &str) -> Result<Option<UserCredential>>;
}
